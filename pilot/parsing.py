"""Strict JSON for the API: an object in UTF-8 that PostgreSQL can store, of bounded size and depth."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from django.conf import settings
from django.utils.translation import gettext as _
from rest_framework import status
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser

DEEPEST = 20
# NUL is valid JSON but no text in PostgreSQL; a lone surrogate is no character at all.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class BodyTooLarge(APIException):
    """The body is longer than DATA_UPLOAD_MAX_MEMORY_SIZE, whatever its Content-Length says."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "body_too_large"


class StrictJSONParser(BaseParser):
    """Parses a body to a dict. Raises ParseError or BodyTooLarge."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return parse_object(read_limited(stream, settings.DATA_UPLOAD_MAX_MEMORY_SIZE))


def read_limited(stream: IO[Any], limit: int) -> bytes:
    """The whole body. Raises BodyTooLarge when it is longer than `limit` bytes."""
    raw: bytes = stream.read(limit + 1)
    if len(raw) > limit:
        raise BodyTooLarge(_("The body may have at most %(limit)s bytes.") % {"limit": limit})
    return raw


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`. Raises ParseError, saying what is wrong with it."""
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise ParseError(_("The body is not UTF-8.")) from None
    except RecursionError:
        raise ParseError(_("The body is nested too deeply.")) from None
    except ValueError as error:  # also a number of more than 4,300 digits
        raise ParseError(_("The body is not valid JSON: %(reason)s") % {"reason": error}) from None
    if not isinstance(value, dict):
        raise ParseError(_("The body must be a JSON object."))
    _check(value, depth=1)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _check(value: Any, *, depth: int) -> None:
    if depth > DEEPEST:
        raise ParseError(_("The body is nested too deeply."))
    if isinstance(value, str) and UNSTORABLE.search(value):
        raise ParseError(_("The body has characters that cannot be stored: NUL or half a surrogate pair."))
    if isinstance(value, float) and not math.isfinite(value):
        raise ParseError(_("The body has a number that is too large."))
    if isinstance(value, dict):
        for name, item in value.items():
            _check(name, depth=depth)
            _check(item, depth=depth + 1)
    if isinstance(value, list):
        for item in value:
            _check(item, depth=depth + 1)
