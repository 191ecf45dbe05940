"""Who may see how the whole installation is doing: the doors of /health and /metrics."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import wraps
from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from pilot.errors import json_error

View = Callable[[HttpRequest], HttpResponse]
FORWARDED = ("X-Forwarded-For", "Forwarded", "X-Real-Ip")


def operators_only(view: View) -> View:
    """Lets in who has the token OPS_TOKEN, signed-in support staff, and who calls directly from OPS_NETWORKS.

    Everybody whom a proxy lets in may seem to call from its address, so a request that came through one must bring
    the token or a session.
    """

    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponse:
        if not (_from_inside(request) or _has_token(request) or _is_staff(request)):
            answer = json_error(
                request, code="unauthenticated", message=_("This is for operators of Pilot."), status=401
            )
            answer["WWW-Authenticate"] = 'Bearer realm="Pilot operators"'
            return answer
        response = view(request)
        response["Cache-Control"] = "no-store"
        return response

    return guarded


def _has_token(request: HttpRequest) -> bool:
    kind, _space, given = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not settings.OPS_TOKEN:
        return False
    return secrets.compare_digest(given.strip().encode(), settings.OPS_TOKEN.encode())


def _from_inside(request: HttpRequest) -> bool:
    if any(name in request.headers for name in FORWARDED):
        return False
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:  # a Unix socket, which is a proxy's
        return False
    return any(address in network for network in settings.OPS_NETWORKS)


def _is_staff(request: HttpRequest) -> bool:
    return request.user.is_authenticated and request.user.is_staff
