"""How an API view says no. Apart from pilot/errors.py, which every process loads: the REST framework is for the web."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError
from django.http import Http404
from django.utils.translation import gettext as _
from rest_framework import exceptions, status
from rest_framework.response import Response

from pilot.errors import RETRY_AFTER, PilotError, envelope, unavailable

log = structlog.get_logger(__name__)

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
