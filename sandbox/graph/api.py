"""Graph's HTTP surface: any version, the token, and the faults a test put in the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.faults import Fault, Faults, Target
from sandbox.graph import instagram, media, messages, nodes, templates
from sandbox.graph.calls import Answer, Call, read_call
from sandbox.graph.errors import GATEWAY_PAGE, GraphError
from sandbox.graph.server import Graph
from sandbox.responses import Cut, Hang

Handler = Callable[[Graph, Call], Awaitable[Answer]]


class Version(Convertor[str]):
    """v25.0 and any other."""

    regex = r"v\d+\.\d+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("graph_version", Version())

# (method, edge) -> (operation for faults and the log, handler); no edge is the node itself.
OPERATIONS: dict[tuple[str, str], tuple[str, Handler]] = {
    ("POST", "messages"): (messages.OP, messages.send),
    ("POST", "media"): ("media/upload", media.upload),
    ("GET", "message_templates"): ("templates/list", templates.list_all),
    ("GET", "phone_numbers"): ("node/phone_numbers", nodes.phone_numbers),
    ("POST", "subscribed_apps"): ("node/subscribe", nodes.subscribe),
    ("GET", "subscribed_apps"): ("node/subscriptions", nodes.subscriptions),
    ("POST", "replies"): (instagram.REPLY_OP, instagram.reply_publicly),
    ("GET", ""): ("node/show", nodes.show),
    ("DELETE", ""): ("node/delete", nodes.delete),
}
# The edges that hang on a number or a business; other nodes are checked by their handlers.
OWN_EDGES = frozenset({"messages", "media", "message_templates", "phone_numbers", "subscribed_apps"})


def routes(graph: Graph) -> list[Route]:
    named = [_route(graph, method, edge) for method, edge in OPERATIONS]
    return [*named, Route("/_media/{node}", _downloader(graph)), *_unknown()]


def _route(graph: Graph, method: str, edge: str) -> Route:
    op, handler = OPERATIONS[method, edge]

    async def endpoint(request: Request) -> Response:
        return await _serve(graph, request, op, edge, handler)

    path = f"/{{version:graph_version}}/{{node}}{f'/{edge}' if edge else ''}"
    return Route(path, endpoint, methods=[method])


def _unknown() -> list[Route]:
    async def endpoint(_request: Request) -> Response:
        return _render(GraphError(100, "Unsupported request.", subcode=33))

    methods = ["GET", "POST", "DELETE", "PUT"]
    return [Route("/{version:graph_version}/{rest:path}", endpoint, methods=methods)]


def _downloader(graph: Graph) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return media.download(graph, await read_call(request, "media/download"))

    return endpoint


async def _serve(graph: Graph, request: Request, op: str, edge: str, handler: Handler) -> Response:
    try:
        call = await read_call(request, op)
        _admit(graph, call, edge)
    except GraphError as error:
        return _render(error)
    if op == messages.OP and call.account.kind == "instagram":
        call.op, handler = instagram.OP, instagram.send
    entry = graph.core.traffic.open(op=call.op, instance=call.account.id, number=call.person)
    response = await _serve_with_faults(graph, call, handler)
    entry.close(_outcome(response))
    return response


def _admit(graph: Graph, call: Call, edge: str) -> None:
    """Raises GraphError 190 without a token that is known, 100/33 for somebody else's node."""
    call.bearer = graph.accounts.by_token(call.token) if call.token else None
    if edge in OWN_EDGES and (owner := graph.accounts.get(call.node)) and owner.token == call.token:
        call.bearer = owner  # one token may be good for several numbers
    if call.bearer is None:
        raise GraphError(190, "Invalid OAuth access token - Cannot parse access token", subcode=463)
    if edge in OWN_EDGES:
        nodes.assert_visible(call.bearer, call.node)


def _outcome(response: Response) -> str:
    if isinstance(response, Cut):
        return "cut"
    return "hang" if isinstance(response, Hang) else str(response.status_code)


@dataclass(frozen=True)
class Plan:
    """The faults that hit one request, drawn before anything happens to it."""

    latency: Fault | None
    reset_before: Fault | None
    hang: Fault | None
    answer_lost: Fault | None
    error: Fault | None


def _draw(faults: Faults, target: Target) -> Plan:
    return Plan(
        latency=faults.take("latency", target),
        reset_before=faults.take("reset_before", target),
        hang=faults.take("hang", target),
        answer_lost=faults.take("answer_lost", target),
        error=faults.take("graph_error", target),
    )


async def _serve_with_faults(graph: Graph, call: Call, handler: Handler) -> Response:
    plan = _draw(graph.core.faults, Target(instance=call.account.id, number=call.person, op=call.op))
    if plan.latency:
        await asyncio.sleep(plan.latency.params["seconds"])
    if plan.reset_before:
        return Cut()
    if plan.hang and not plan.hang.params["accepted"]:
        return Hang()
    if plan.error and not plan.error.params["accepted"]:
        return _failure(plan.error)
    response = await _answer(graph, call, handler)
    if plan.answer_lost:
        return Cut()
    if plan.hang:
        return Hang()
    return _failure(plan.error) if plan.error else response


async def _answer(graph: Graph, call: Call, handler: Handler) -> Response:
    try:
        status, body = await handler(graph, call)
    except GraphError as error:
        return _render(error)
    return JSONResponse(body, status_code=status)


def _failure(fault: Fault) -> Response:
    wanted = fault.params
    if wanted["code"] is None:
        return Response(GATEWAY_PAGE, status_code=wanted["status"] or 502, media_type="text/html")
    return _render(
        GraphError(
            wanted["code"],
            wanted["details"],
            subcode=wanted["subcode"],
            status=wanted["status"],
            retry_after=wanted["retry_after"],
        )
    )


def _render(error: GraphError) -> Response:
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else None
    body = json.dumps(error.body())
    return Response(body, status_code=error.status, headers=headers, media_type="application/json")
