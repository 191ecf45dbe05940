"""The OpenAPI description: what all operations have in common is written into it once it is made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from typing import Any

from django.utils.translation import get_language
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiJsonRenderer2
from drf_spectacular.views import SpectacularAPIView
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from pilot.api import with_etag
from pilot.errors import PilotError
from pilot.examples import EXAMPLES
from pilot.parsing import BodyTooLarge
from pilot.refusing import CODES
from pilot.requests import API_VERSION

ABOUT = f"""
Delivers WhatsApp messages: what was accepted is never lost, never sent twice, never sent late.

**Conventions.** JSON in UTF-8, `snake_case`, times in UTC as RFC 3339, ids as strings. Fields and parameters that are
not known are refused by name. Lists go on with `next_cursor`; what is added meanwhile shifts nothing. A `GET` answers
with an `ETag`, and with `304` to an `If-None-Match` that still fits. Every answer carries `X-Request-Id`, yours when
you sent one of up to 64 letters, digits, `.`, `_` and `-`.

**Versions.** Every answer names the version of the API, a day, in `Pilot-Version`; a request may name it, too, and is
refused with `unknown_api_version` when there is no such version. New fields, operations and error codes may come at any
time: ignore what you do not know. What old clients could not ignore comes as a new version; what is to go is marked
`deprecated` here, and said by the headers `Deprecation` and `Sunset`, half a year before. This is {API_VERSION}.

**Limits.** `RateLimit-Policy` says how many requests (`q`) within how many seconds (`w`) a key, and all keys of its
tenant, may make; `RateLimit` how many are left (`r`), and in how many seconds all are there again (`t`). One too many
is answered with `429` and `Retry-After`. A batch is one request.
"""
TAGS = {
    "contacts": "People, and whether they agreed to be written to.",
    "instances": "The numbers that messages are sent from.",
    "keys": "API keys: who may do what.",
    "media": "Files that messages name.",
    "messages": "Sending messages, and what became of them.",
    "numbers": "Telephone numbers before anything is sent to them.",
    "queues": "What waits, on which instance, and for how long.",
    "templates": "Texts with variables, and their versions.",
    "usage": "What was used.",
    "webhooks": "What your programs are told, and what became of it.",
}
HEADERS = {
    "X-Request-Id": "The id of the request, yours if you sent one.",
    "Pilot-Version": "The version of the API: a day.",
    "RateLimit-Policy": 'Such as `"key";q=200;w=2`: at most 200 requests at once, all there again after 2 seconds.',
    "RateLimit": 'Such as `"key";r=150;t=1`: 150 requests are left, all are there again in a second.',
}
RETRY_AFTER = {"description": "In how many seconds to ask again.", "schema": {"type": "integer"}}
ETAG = {"description": "For `If-None-Match`.", "schema": {"type": "string"}}
# By what stands before it in the path.
PATH_PARAMETERS = {
    "contacts": "The person's number.",
    "deliveries": "The delivery's id.",
    "instances": "The instance's name.",
    "keys": "The beginning of the key, by which it is known.",
    "messages": "The message's id.",
    "templates": "The template's name.",
    "versions": "The version's number; 1 is the first.",
    "webhooks": "The webhook's id.",
}
# What is answered outside of any operation.
GENERAL_CODES = {
    "bad_request": "400: the request is not acceptable as HTTP, such as for an unknown host.",
    "internal": "500: something went wrong on our side.",
    "unavailable": "503: the service is away for a moment. Repeat with the same `Idempotency-Key`.",
}


class KeptGenerator(SchemaGenerator):
    """Makes the description once for each language: it takes a good part of a second, and anybody may ask."""

    def get_schema(self, request: Any = None, public: bool = False) -> Any:
        return _described(get_language())


@cache
def _described(_language: str | None) -> Any:
    untyped: Any = SchemaGenerator
    return untyped().get_schema(request=None, public=True)


class SchemaView(SpectacularAPIView):
    """The description, in JSON as everything is."""

    renderer_classes = [OpenApiJsonRenderer2, OpenApiJsonRenderer]
    generator_class = KeptGenerator

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        return with_etag(request, super().finalize_response(request, response, *args, **kwargs))


def complete(result: dict[str, Any], **_given: Any) -> dict[str, Any]:
    """A hook of drf-spectacular: adds what every operation has, all error codes, and examples."""
    result["info"] |= {"version": API_VERSION, "description": ABOUT.strip()}
    components = result["components"]
    components["headers"] = {
        name: {"description": about, "schema": {"type": "string"}} for name, about in HEADERS.items()
    }
    _list_codes(components["schemas"]["ErrorBody"]["properties"]["code"])
    for name, example in EXAMPLES.items():
        components["schemas"][name].setdefault("examples", [example])
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            _complete(operation, path, method)
    used = sorted({tag for operation in _operations(result) for tag in operation["tags"]})
    result["tags"] = [{"name": tag, "description": TAGS[tag]} for tag in used]
    return result


def error_codes() -> dict[str, str]:
    """Every code that an answer may have, with its status and what it means."""
    found = dict(GENERAL_CODES)
    known: dict[type[Exception], str] = CODES | {BodyTooLarge: BodyTooLarge.default_code}
    for kind, code in known.items():
        if issubclass(kind, APIException):
            found[code] = f"{kind.status_code}: {HTTPStatus(kind.status_code).phrase}."
    for refusal in _descendants(PilotError):
        about = " ".join((refusal.__doc__ or "").split("\n\n")[0].split())
        for code in refusal.codes or (refusal.code,):
            found.setdefault(code, f"{refusal.status}: {about}")
    return dict(sorted(found.items()))


def _descendants(kind: type[PilotError]) -> Iterator[type[PilotError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _descendants(each)


def _list_codes(field: dict[str, Any]) -> None:
    codes = error_codes()
    lines = [f"* `{code}`: {about}" for code, about in codes.items()]
    field["enum"] = list(codes)
    field["description"] = "\n".join(["One word for programs. There may come new ones.", "", *lines])


def _operations(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (operation for operations in result["paths"].values() for operation in operations.values())


def _complete(operation: dict[str, Any], path: str, method: str) -> None:
    answers = operation["responses"]
    refusal = answers["401"]["content"]
    for status in ("406", "429"):
        answers.setdefault(status, {"content": refusal})
    if method == "get" and "application/json" in answers["200"].get("content", {}):
        answers["200"]["headers"] = {"ETag": ETAG}
        answers["304"] = {}
    for status, answer in answers.items():
        answer["description"] = answer.get("description") or f"{HTTPStatus(int(status)).phrase}."
        common = {name: {"$ref": f"#/components/headers/{name}"} for name in HEADERS}
        answer["headers"] = common | answer.get("headers", {})
    for status in ("429", "503"):
        answers[status]["headers"]["Retry-After"] = RETRY_AFTER
    operation["responses"] = dict(sorted(answers.items()))
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path" and not parameter.get("description"):
            parameter["description"] = PATH_PARAMETERS[_before(path, parameter["name"])]


def _before(path: str, name: str) -> str:
    parts = path.split("/")
    return parts[parts.index(f"{{{name}}}") - 1]
