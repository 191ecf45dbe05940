"""The door that Meta calls, one for each app: the handshake, the signature, one row, 200.

Meta repeats for days whatever is not answered with 200, and one app may tell of many numbers in one call. So a call
that is really Meta's is always taken, whatever it says; what it says is for webhooks/applying.py.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets

import structlog
from django.db import Error as DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from instances import meta_apps
from instances.models import MetaApp
from webhooks.inbound import read_body
from webhooks.models import InboundCall

log = structlog.get_logger(__name__)

SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})")
OBJECT_NAME = re.compile(r"[a-z_]{1,60}")


@csrf_exempt
@require_http_methods(["GET", "POST"])
def receive(request: HttpRequest, token: str) -> HttpResponse:
    """Answers the handshake (GET, which is not signed) or stores one call (POST) of the app whose secret is `token`.

    GET: 200 with the challenge, 403 for another verify token. POST: 200 stored, 401 not signed, 403 signed by somebody
    else, 413 larger than DATA_UPLOAD_MAX_MEMORY_SIZE, 503 not stored. 404 for an unknown token.
    """
    try:
        app = meta_apps.by_hook_token(token)
        if app is None:
            raise Http404
        return _shake_hands(request, app) if request.method == "GET" else _take(request, app)
    except DatabaseError:
        log.exception("webhooks.meta.not_stored")
        return JsonResponse({"ok": False}, status=503, headers={"Retry-After": "5"})


def _shake_hands(request: HttpRequest, app: MetaApp) -> HttpResponse:
    given = request.GET.get("hub.verify_token", "")
    ours = secrets.compare_digest(given.encode(), app.verify_token.encode())
    if request.GET.get("hub.mode") != "subscribe" or not ours:
        return HttpResponse(status=403)
    return HttpResponse(request.GET.get("hub.challenge", ""), content_type="text/plain")


def _take(request: HttpRequest, app: MetaApp) -> HttpResponse:
    body = read_body(request)
    if body is None:
        return JsonResponse({"ok": False}, status=413)
    signature = request.headers.get("X-Hub-Signature-256", "")
    if not signature:
        return JsonResponse({"ok": False}, status=401)
    if not is_signed(body, signature, secret=app.secret):
        log.warning("webhooks.meta.wrong_signature", app_id=app.pk)
        return JsonResponse({"ok": False}, status=403)
    InboundCall.objects.create(app=app, event=_object(body), body=body)
    return JsonResponse({"ok": True})


def is_signed(body: bytes, signature: str, *, secret: str) -> bool:
    """Whether `signature` is the secret's over these very bytes: what is parsed and written again has another."""
    given = SIGNATURE.fullmatch(signature)
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return given is not None and bool(secret) and secrets.compare_digest(given[1], expected)


def _object(body: bytes) -> str:
    """What the call says it is about, for the list of calls."""
    try:
        named = json.loads(body)["object"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return named if isinstance(named, str) and OBJECT_NAME.fullmatch(named) else ""
