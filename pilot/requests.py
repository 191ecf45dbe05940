"""What every answer carries: the id of its request, which also stands in every log line; and, from the API, its version
and what is left of the key's limits."""

from __future__ import annotations

import re
from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse

from pilot.buckets import Drawn
from pilot.ids import new_id

API_VERSION = "2026-11-29"  # the day of the last change that old clients could not ignore
API_HEADERS = {"Cache-Control": "no-store", "Pilot-Version": API_VERSION}
ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id_for(given: str) -> str:
    """The client's X-Request-Id when it is harmless, else a new one."""
    return given if ACCEPTABLE.fullmatch(given) else new_id()


class RequestIdMiddleware:
    """Sets `request.request_id`."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request_id = request_id_for(request.headers.get("X-Request-Id", ""))
        request.request_id = request_id  # type: ignore[attr-defined]
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            response = self.get_response(request)
        response["X-Request-Id"] = request_id
        return response


class ApiHeadersMiddleware:
    """For everything under /api/, refusals and unknown addresses too."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if request.path.startswith("/api/"):
            drawn: Drawn | None = getattr(request, "drawn", None)
            for name, value in (API_HEADERS | (drawn.headers if drawn else {})).items():
                response.setdefault(name, value)
        return response
