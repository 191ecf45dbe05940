"""One error envelope for everything the API says no to: {"error": {"code", "message", "fields"?, "request_id"}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions, status
from rest_framework.response import Response

log = structlog.get_logger(__name__)

RETRY_AFTER = "5"  # seconds

# The words of Django REST framework, and ours.
CODES: dict[type[Exception], str] = {
    exceptions.ParseError: "malformed_json",
    exceptions.ValidationError: "invalid",
    exceptions.NotAuthenticated: "unauthenticated",
    exceptions.AuthenticationFailed: "unauthenticated",
    exceptions.PermissionDenied: "forbidden",
    exceptions.NotFound: "not_found",
    exceptions.MethodNotAllowed: "method_not_allowed",
    exceptions.NotAcceptable: "not_acceptable",
    exceptions.UnsupportedMediaType: "unsupported_media_type",
    exceptions.Throttled: "rate_limited",
}


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


def api_exception_handler(exc: Exception, context: Mapping[str, Any]) -> Response:
    """Answers any exception of an API view, the unforeseen ones as a logged 500."""
    request_id = getattr(context["request"], "request_id", "")
    if isinstance(exc, Http404):
        exc = exceptions.NotFound()
    if isinstance(exc, PilotError):
        body = envelope(code=exc.code, message=exc.message, fields=exc.fields, request_id=request_id)
        return Response(body, status=exc.status)
    if isinstance(exc, exceptions.APIException):
        return answer_to(exc, request_id)
    if isinstance(exc, OperationalError | InterfaceError):
        return Response(
            unavailable(exc, request_id),
            status=status.HTTP_503_SERVICE_UNAVAILABLE,
            headers={"Retry-After": RETRY_AFTER},
        )
    log.exception("api.unforeseen", path=context["request"].path)
    body = envelope(code="internal", message=_("Something went wrong on our side."), request_id=request_id)
    return Response(body, status=status.HTTP_500_INTERNAL_SERVER_ERROR)


def answer_to(exc: exceptions.APIException, request_id: str) -> Response:
    """The answer to an exception of Django REST framework."""
    code = next((word for kind, word in CODES.items() if isinstance(exc, kind)), exc.default_code)
    fields = exc.detail if isinstance(exc, exceptions.ValidationError) else None
    if fields is not None and not isinstance(fields, dict):
        fields = {"body": fields}
    message = _("Some fields are not valid.") if fields else str(exc.detail)
    headers = {}
    if challenge := getattr(exc, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if wait := getattr(exc, "wait", None):
        headers["Retry-After"] = str(int(wait) + 1)
    body = envelope(code=code, message=message, fields=fields, request_id=request_id)
    return Response(body, status=exc.status_code, headers=headers)


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
