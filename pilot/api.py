"""What all API views share: strict shapes, instants with an offset, opaque cursors, answers nobody caches."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response, set_response_etag
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from pilot.errors import PilotError
from pilot.requests import API_VERSION

UNKNOWN_PARAMETER = gettext_lazy("This parameter is not known.")
HANDLERS = {name: name.lower() for name in ("GET", "POST", "PUT", "PATCH", "DELETE")} | {"HEAD": "get"}
Row = TypeVar("Row", bound=Model)
OFFSET = re.compile(r"(Z|[+-]\d\d:?\d\d)$", re.IGNORECASE)
MOST_ROWS = 200
LONGEST_CURSOR = 500


class ApiView(APIView):
    """A view whose answers belong to one key and must not be kept by anyone on the way.

    Declares `read_scope` and `write_scope`, which accounts.api.authentication.HasScope asks for.
    """

    def perform_authentication(self, request: Request) -> None:
        """Also counts the request, as soon as it is known whose it is: refused ones count, too."""
        super().perform_authentication(request)
        super().check_throttles(request)

    def check_throttles(self, request: Request) -> None:
        """Done, see perform_authentication()."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        check_version(request.headers.get("Pilot-Version", API_VERSION))
        if handler := getattr(type(self), HANDLERS.get(request.method or "", ""), None):
            check_query(request, known=query_of(handler))

    def options(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """Only says, in the header `Allow`, which methods there are."""
        return Response(status=204)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        return with_etag(request, super().finalize_response(request, response, *args, **kwargs))


def with_etag(request: Request, response: Any) -> Any:
    """The response; what was read then gets an ETag, and is left out when the client has it."""
    if request.method in {"GET", "HEAD"} and response.status_code == 200 and isinstance(response, Response):
        response.add_post_render_callback(partial(_unless_known, request._request))
    return response


def _unless_known(request: HttpRequest, response: HttpResponse) -> HttpResponseBase | None:
    """The response with an ETag of its body, or 304 without one when the client has the same."""
    set_response_etag(response)
    return get_conditional_response(request, etag=response["ETag"], response=response)


class UnknownVersion(PilotError):
    """The header `Pilot-Version` names a version of the API that there is none of."""

    code = "unknown_api_version"


def check_version(given: str) -> None:
    """Raises UnknownVersion."""
    if given != API_VERSION:
        message = _("There is no version %(given)s of this API.") % {"given": given[:20]}
        raise UnknownVersion(
            message, fields={"Pilot-Version": [_("Must be %(day)s.") % {"day": API_VERSION}]}
        )


def check_query(request: Request, *, known: frozenset[str]) -> None:
    """Refuses parameters of the query that an operation does not have. Raises DRF's ValidationError naming them."""
    unknown = sorted(name for name in request.query_params if name.partition("[")[0] not in known)
    if unknown:
        raise ValidationError({name: [UNKNOWN_PARAMETER] for name in unknown})


@cache
def query_of(handler: Callable[..., Any]) -> frozenset[str]:
    """The names of the parameters that an operation takes in the query, by what extend_schema() was told of it."""
    description = handler.kwargs["schema"]()  # type: ignore[attr-defined]
    description.view = APIView(request=None, kwargs={})
    parameters = description.get_override_parameters()
    return frozenset(name for parameter in parameters for name in _names(parameter))


def _names(parameter: Any) -> list[str]:
    if isinstance(parameter, OpenApiParameter):
        return [parameter.name] if parameter.location == OpenApiParameter.QUERY else []
    return list(parameter().fields)


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses fields that it does not know, because a misspelt option must not be ignored, and values that would have
    to be converted: "no" is not false, and 5 is not "5"."""

    unknown: Any = gettext_lazy("This field is not known.")

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, Mapping) else []
        if unknown:
            raise ValidationError({str(name): [self.unknown] for name in unknown})
        faults = self._wrong_types(data) if isinstance(data, Mapping) else {}
        try:
            fields = super().to_internal_value(data)
        except ValidationError as error:
            raise ValidationError({**error.detail, **faults}) from None  # type: ignore[dict-item]
        if faults:
            raise ValidationError(faults)
        return fields

    def _wrong_types(self, data: Mapping[str, Any]) -> dict[str, Any]:
        fields = self.fields
        faults = {name: wrong_type(fields[name], value) for name, value in data.items()}
        return {name: [fault] for name, fault in faults.items() if fault}


class QuerySerializer(StrictSerializer):
    """The parameters of a query, in which everything is a string."""

    unknown = UNKNOWN_PARAMETER

    def _wrong_types(self, data: Mapping[str, Any]) -> dict[str, Any]:
        return {}


# By the kind of a field: the JSON types that it takes as they are, and what is said of others.
JSON_TYPES: list[tuple[Any, Any, Any]] = [
    (serializers.BooleanField, bool, gettext_lazy("Must be true or false.")),
    (serializers.IntegerField, int, gettext_lazy("Must be a whole number.")),
    ((serializers.CharField, serializers.ChoiceField), str, gettext_lazy("Must be a string.")),
]


def wrong_type(field: Any, value: Any) -> Any:
    """What is wrong with the JSON type of a field's value, or of one of the values in it; None when nothing is."""
    if isinstance(field, serializers.ListField) and isinstance(value, list):
        return next(filter(None, (wrong_type(field.child, each) for each in value)), None)
    if isinstance(field, serializers.DictField) and isinstance(value, Mapping):
        return next(filter(None, (wrong_type(field.child, each) for each in value.values())), None)
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1.0 is a whole number in JSON Schema
    for kind, wanted, fault in JSON_TYPES:
        if isinstance(field, kind):
            return None if value is None or type(value) is wanted else fault
    return None


class InstantField(serializers.DateTimeField):
    """RFC 3339 with an offset on the way in, because a local time without one is a guess; UTC on the way out."""

    default_error_messages = {
        "no_offset": gettext_lazy("Must carry an offset, such as 2026-01-31T12:00:00Z.")
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(default_timezone=UTC, **options)

    def to_internal_value(self, value: Any) -> datetime:
        if isinstance(value, str) and not OFFSET.search(value.strip()):
            self.fail("no_offset")
        return super().to_internal_value(value)

    def to_representation(self, value: datetime) -> str:
        return rfc_3339(value)


def rfc_3339(at: datetime) -> str:
    """In UTC, to the microsecond."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def instant(at: datetime | None) -> str | None:
    """The same, where there may be none."""
    return rfc_3339(at) if at else None


class CursorField(serializers.CharField):
    """An opaque place in a list: what identifies its last row."""

    default_error_messages = {"bad_cursor": gettext_lazy("Not a cursor that this list gave out.")}

    def to_internal_value(self, data: Any) -> str:
        token = super().to_internal_value(data)
        try:
            place = urlsafe_b64decode(token.encode() + b"==").decode()
        except ValueError:
            self.fail("bad_cursor")
        # The decoder skips what is no letter of its own; and what is validated later is the place, not the token.
        if not place.isprintable() or cursor_of(place) != token or len(token) > LONGEST_CURSOR:
            self.fail("bad_cursor")
        return place


def cursor_of(place: str) -> str:
    """The cursor that CursorField reads back as `place`."""
    return urlsafe_b64encode(place.encode()).decode().rstrip("=")


def page_of(rows: QuerySet[Row], *, limit: int, place: Callable[[Row], str]) -> tuple[list[Row], str | None]:
    """The first `limit` of `rows`, which come in the order of `place`, and the cursor of the page after them: None on
    the last one. `place` is what a cursor says of the row that it follows."""
    page = list(rows[: limit + 1])
    return page[:limit], cursor_of(place(page[limit - 1])) if len(page) > limit else None


def bad_cursor() -> ValidationError:
    """What is answered to a cursor that names no place in the list."""
    return ValidationError({"cursor": [_("Not a cursor that this list gave out.")]})


def validated(form: type[serializers.Serializer[Any]], given: Any) -> dict[str, Any]:
    """What a request's body or query says, by this form. Raises DRF's ValidationError."""
    filled = form(data=given)
    filled.is_valid(raise_exception=True)
    fields: dict[str, Any] = filled.validated_data
    return fields


class PageFilter(QuerySerializer):
    """How much of a list, from where."""

    limit = serializers.IntegerField(
        min_value=1, max_value=MOST_ROWS, default=50, help_text="How many rows at most."
    )
    cursor = CursorField(
        required=False, help_text="`next_cursor` of the page before.", max_length=LONGEST_CURSOR
    )


class ErrorBodySerializer(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="One word for programs, such as `opt_in_required`.")
    message = serializers.CharField(help_text="A sentence for people.")
    request_id = serializers.CharField(help_text="The same as the header `X-Request-Id`.")
    fields = serializers.DictField(  # type: ignore[assignment]
        required=False, help_text="What is wrong with which field."
    )


class ErrorSerializer(serializers.Serializer[Any]):
    """Every answer that says no."""

    error = ErrorBodySerializer()


def refusals(*statuses: int) -> dict[int, type[ErrorSerializer]]:
    """The error answers of an operation, for the schema. Every operation needs a key and the database."""
    return dict.fromkeys((401, *statuses, 503), ErrorSerializer)
