"""Evolution's error envelope in its three shapes, and the failures a test can ask for by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

REASONS = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    429: "Too Many Requests",
    500: "Internal Server Error",
}
GATEWAY_PAGE = "<html><head><title>{0}</title></head><body><center><h1>{0}</h1></center></body></html>"


class EvolutionError(Exception):
    """An answer that is not a success. `body` is sent as JSON, or as it is when a string."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body


def envelope(status: int, message: Any, *, reason: str | None = None) -> EvolutionError:
    """A string message means unhandled, a list deliberate, a nested list a schema violation."""
    error = reason or REASONS[status]
    return EvolutionError(status, {"status": status, "error": error, "response": {"message": message}})


def bad_request(text: str) -> EvolutionError:
    return envelope(400, [text])


def invalid(violations: list[str]) -> EvolutionError:
    return envelope(400, [violations])


def unhandled(text: str) -> EvolutionError:
    return envelope(500, text)


def unknown_instance(name: str) -> EvolutionError:
    return envelope(404, [f'The "{name}" instance does not exist'])


def unauthorized() -> EvolutionError:
    return envelope(401, "Unauthorized")


def not_on_whatsapp(jid: str, number: str) -> EvolutionError:
    return envelope(400, [{"jid": jid, "exists": False, "number": number}])


def undefined(member: str) -> str:
    """What JavaScript says when `undefined.member` is read."""
    return f"Cannot read properties of undefined (reading '{member}')"


@dataclass(frozen=True)
class Quoted:
    """What a named failure may quote."""

    instance: str
    jid: str
    number: str


@dataclass(frozen=True)
class Shape:
    """A named failure. `accepted`: WhatsApp got the message all the same; `saved`: Evolution stored it
    and fired its webhook."""

    build: Callable[[Quoted], EvolutionError]
    accepted: bool = False
    saved: bool = True
    headers: dict[str, str] = field(default_factory=dict)


def _always(error: EvolutionError) -> Callable[[Quoted], EvolutionError]:
    return lambda _quoted: error


def _gateway(status: int, title: str) -> Callable[[Quoted], EvolutionError]:
    return _always(EvolutionError(status, GATEWAY_PAGE.format(f"{status} {title}")))


LICENSE_REQUIRED = {
    "error": "service not activated",
    "code": "LICENSE_REQUIRED",
    "register_url": "https://evolution.test/manager/login",
    "instance_id": "00000000-0000-4000-8000-000000000000",
    "docs_url": "https://evolution.test/docs",
    "message": "This service has not been activated.",
}
PRISMA_TEXT = "PrismaClientKnownRequestError: Invalid `prisma.message.create()` invocation"

SHAPES = {
    "connection_closed_400": Shape(_always(bad_request("Error: Connection Closed"))),
    "connection_closed_500": Shape(_always(unhandled("Connection Closed"))),
    "type_error_400": Shape(_always(bad_request(f"TypeError: {undefined('id')}"))),
    "on_whatsapp_500": Shape(_always(unhandled(undefined("onWhatsApp")))),
    "timed_out_400": Shape(_always(bad_request("Error: Timed Out")), saved=False),
    "prisma_400": Shape(_always(bad_request(PRISMA_TEXT)), accepted=True, saved=False),
    "not_on_whatsapp": Shape(lambda quoted: not_on_whatsapp(quoted.jid, quoted.number)),
    "object_object_400": Shape(_always(bad_request("[object Object]"))),
    "unauthorized_401": Shape(_always(unauthorized())),
    "forbidden_403": Shape(_always(envelope(403, "Forbidden"))),
    "instance_404": Shape(lambda quoted: unknown_instance(quoted.instance)),
    "license_503": Shape(_always(EvolutionError(503, LICENSE_REQUIRED))),
    "bad_gateway_502": Shape(_gateway(502, "Bad Gateway")),
    "gateway_timeout_504": Shape(_gateway(504, "Gateway Time-out")),
    "internal_500": Shape(_always(unhandled("Internal Server Error"))),
    "too_many_429": Shape(_always(envelope(429, ["rate-overlimit"]))),
    "empty_201": Shape(_always(EvolutionError(201, "")), accepted=True),
}
