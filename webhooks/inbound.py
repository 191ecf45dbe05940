"""The door that providers call: who it is, one row, 200. What the call says is for webhooks/applying.py.

Evolution repeats a call for about 20 minutes, but drops it for ever on 400, 401, 403, 404 and 422. So whoever knows the
secret gets 200 whatever the body is, and 503 when it could not be stored; whoever does not gets the 404 of any unknown
path.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from instances import connecting, outages
from instances.models import Instance
from webhooks.models import CONNECTION_EVENTS, CONNECTION_UPDATE, InboundCall

log = structlog.get_logger(__name__)

EVENT_NAME = re.compile(r"[a-z][a-z._]{0,59}")
# Evolution puts the instance's key into its calls. No string's content matches: a quote inside one is escaped.
API_KEY = re.compile(rb'("apikey"\s*:\s*)"(?:[^"\\]|\\.)*"')
# An instance that cannot reach WhatsApp reports "connecting" about 16 times a second. Within this time a report that
# only repeats the newest news of the connection says nothing, and is not stored.
COLLAPSED_WITHIN = timedelta(seconds=10)
# Others come and go as fast. Of those so many are stored in so long; how it ended is then asked for.
STORM = 6
STORM_WITHIN = timedelta(minutes=1)


@csrf_exempt
@require_POST
def receive(request: HttpRequest, token: str, suffix: str = "") -> HttpResponse:
    """Stores one call of the instance whose secret is `token`.

    200 stored, 404 wrong secret, 405 not a POST, 413 larger than DATA_UPLOAD_MAX_MEMORY_SIZE, 503 not stored.
    `suffix` is the event's name that Evolution appends to the path with `byEvents`; the body says it too.
    """
    body = read_body(request)
    if body is None:
        return JsonResponse({"ok": False}, status=413)
    try:
        instance = connecting.by_hook_token(token)
        if instance is not None:
            _store(instance, body)
    except DatabaseError:
        log.exception("webhooks.inbound.not_stored")
        return JsonResponse({"ok": False}, status=503, headers={"Retry-After": "5"})
    if instance is None:
        raise Http404
    return JsonResponse({"ok": True})


def read_body(request: HttpRequest) -> bytes | None:
    """The body, or None when it is too large. Not `request.body`, which answers a large one with a final 400."""
    body = request.read(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)
    return None if len(body) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE else body


def _store(instance: Instance, body: bytes) -> None:
    call = _parsed(body)
    event = call.get("event")
    name = event if isinstance(event, str) and EVENT_NAME.fullmatch(event) else ""
    if name == CONNECTION_UPDATE and _says_nothing(instance, call.get("data")):
        return
    InboundCall.objects.create(instance=instance, event=name, body=API_KEY.sub(rb'\1"redacted"', body))


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return call if isinstance(call, dict) else {}


def _says_nothing(instance: Instance, data: Any) -> bool:
    """Whether this news of the connection of `instance` only repeats the newest, or is one of a storm."""
    now = timezone.now()
    about_it = InboundCall.objects.filter(instance=instance, event__in=CONNECTION_EVENTS)
    newest = list(about_it.order_by("-id")[:STORM])
    if newest and _repeats(newest[0], data, now):
        return True
    recent = [
        call for call in newest if call.event == CONNECTION_UPDATE and call.received_at > now - STORM_WITHIN
    ]
    if len(recent) < STORM:
        return False
    outages.doubt(instance=instance, reason="unstable", at=now, recheck_at=now + settings.HEALTHCHECK_SLEEP)
    return True


def _repeats(newest: InboundCall, data: Any, now: datetime) -> bool:
    """Only the newest: a state that came back is news."""
    return (
        newest.event == CONNECTION_UPDATE
        and newest.received_at > now - COLLAPSED_WITHIN
        and _parsed(bytes(newest.body)).get("data") == data
    )
