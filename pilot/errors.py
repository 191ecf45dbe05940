"""One error envelope for everything the API says no to: {"error": {"code", "message", "fields"?, "request_id"}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt

log = structlog.get_logger(__name__)

RETRY_AFTER = "5"  # seconds


class PilotError(Exception):
    """An anticipated refusal. Subclasses live beside the code that raises them.

    `fields` maps a field's name to what is wrong with it. A subclass whose code varies has all of them in `codes`.
    """

    code = "invalid"
    codes: tuple[str, ...] = ()
    status = 400

    def __init__(self, message: str, *, fields: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fields = dict(fields or {})


def envelope(
    *, code: str, message: str, request_id: str, fields: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The body of every error answer."""
    error: dict[str, Any] = {"code": code, "message": message, "request_id": request_id}
    return {"error": error | ({"fields": dict(fields)} if fields else {})}


def unavailable(exc: Exception, request_id: str) -> dict[str, Any]:
    """The body that says: the database is away or too slow. Whether a change went through may be unknown: ask with
    the same key."""
    log.error("api.database_unavailable", error=str(exc))
    message = _("The service is unavailable for a moment. Repeat the request with the same Idempotency-Key.")
    return envelope(code="unavailable", message=message, request_id=request_id)


# --- outside of API views ---------------------------------------------------------------------------------


def json_error(request: HttpRequest, *, code: str, message: str, status: int) -> JsonResponse:
    """The same envelope outside of API views."""
    request_id = getattr(request, "request_id", "")
    body = envelope(code=code, message=message, request_id=request_id)
    return JsonResponse(
        body,
        status=status,
        headers={"Cache-Control": "no-store"},
        json_dumps_params={"ensure_ascii": False},
    )


@csrf_exempt
def unknown_path(request: HttpRequest) -> JsonResponse:
    """Answers every path under /api/ that nothing else does."""
    return json_error(request, code="not_found", message=_("There is nothing at this address."), status=404)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler400: what Django refuses before a view sees it, such as an unknown host."""
    if not _of_api(request):
        return defaults.bad_request(request, exception)
    return json_error(request, code="bad_request", message=_("The request is not acceptable."), status=400)


def server_error(request: HttpRequest) -> HttpResponse:
    """handler500: a failure outside of any API view."""
    if not _of_api(request):
        return defaults.server_error(request)
    return json_error(request, code="internal", message=_("Something went wrong on our side."), status=500)


def _of_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")
