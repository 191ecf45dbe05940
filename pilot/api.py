"""What all API views share: strict shapes, instants with an offset, opaque cursors, answers nobody caches."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.views import APIView

Row = TypeVar("Row", bound=Model)
OFFSET = re.compile(r"(Z|[+-]\d\d:?\d\d)$", re.IGNORECASE)
MOST_ROWS = 200


class ApiView(APIView):
    """A view whose answers belong to one key and must not be kept by anyone on the way.

    Declares `read_scope` and `write_scope`, which accounts.api.authentication.HasScope asks for.
    """

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        response["Cache-Control"] = "no-store"
        return response


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses fields that it does not know: a misspelt option must not be ignored."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = set(data) - set(self.fields) if isinstance(data, Mapping) else ()
        if unknown:
            fault = _("This field is not known.")
            raise serializers.ValidationError({str(name): [fault] for name in sorted(unknown)})
        return super().to_internal_value(data)


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
        if not place.isprintable():
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


class PageFilter(StrictSerializer):
    """How much of a list, from where."""

    limit = serializers.IntegerField(
        min_value=1, max_value=MOST_ROWS, default=50, help_text="How many rows at most."
    )
    cursor = CursorField(required=False, help_text="`next_cursor` of the page before.", max_length=500)


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
