"""Evolution's HTTP surface: routes, guards, validation, and the faults a test put in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.evolution import chats, guards, hooks, lifecycle, messages
from sandbox.evolution.calls import Answer, Call, read_call
from sandbox.evolution.errors import SHAPES, EvolutionError, Quoted, Shape, envelope, invalid
from sandbox.evolution.schemas import SCHEMAS
from sandbox.evolution.server import Evolution
from sandbox.evolution.validation import violations
from sandbox.faults import Fault, Faults, Target
from sandbox.numbers import to_jid
from sandbox.responses import Cut, Hang

Handler = Callable[[Evolution, Call], Awaitable[Answer]]

WELCOME = {
    "status": 200,
    "message": "Welcome to the Evolution API, it is working!",
    "version": "2.3.7",
    "clientName": "evolution",
    "documentation": "https://doc.evolution-api.com",
    "whatsappWebVersion": "2.3000.1027934701",
}

# op -> (method, handler); the path is /op, and /op/{name} for all but create and fetchInstances.
OPERATIONS: dict[str, tuple[str, Handler]] = {
    "instance/create": ("POST", lifecycle.create),
    "instance/fetchInstances": ("GET", lifecycle.fetch_instances),
    "instance/connectionState": ("GET", lifecycle.connection_state),
    "instance/connect": ("GET", lifecycle.connect),
    "instance/restart": ("POST", lifecycle.restart),
    "instance/logout": ("DELETE", lifecycle.log_out),
    "instance/delete": ("DELETE", lifecycle.delete),
    "instance/setPresence": ("POST", lifecycle.set_presence),
    "message/sendText": ("POST", messages.send_text),
    "message/sendButtons": ("POST", messages.send_buttons),
    "message/sendMedia": ("POST", messages.send_media),
    "message/sendTemplate": ("POST", messages.send_template),
    "chat/sendPresence": ("POST", chats.send_presence),
    "chat/findMessages": ("POST", chats.find_messages),
    "chat/findStatusMessage": ("POST", chats.find_status_message),
    "chat/whatsappNumbers": ("POST", chats.whatsapp_numbers),
    "webhook/set": ("POST", hooks.set_webhook),
    "webhook/find": ("GET", hooks.find_webhook),
}
RAW_ERRORS = frozenset({"chat/whatsappNumbers"})


def routes(evolution: Evolution) -> list[Route]:
    named = [_route(evolution, op, method, handler) for op, (method, handler) in OPERATIONS.items()]
    return [Route("/", _welcome), *named]


def _route(evolution: Evolution, op: str, method: str, handler: Handler) -> Route:
    async def endpoint(request: Request) -> Response:
        return await _serve(evolution, request, op, handler)

    path = f"/{op}" if op in guards.UNNAMED else f"/{op}/{{name}}"
    return Route(path, endpoint, methods=[method])


async def _welcome(_request: Request) -> Response:
    return JSONResponse(WELCOME)


async def not_found(request: Request, _error: Exception) -> Response:
    """An unknown path and a wrong method are the same 404."""
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return render(envelope(404, [f"Cannot {request.method} {target}"]))


def render(error: EvolutionError, headers: dict[str, str] | None = None) -> Response:
    if isinstance(error.body, str):
        return Response(error.body, status_code=error.status, headers=headers, media_type="text/html")
    return JSONResponse(error.body, status_code=error.status, headers=headers)


async def _serve(evolution: Evolution, request: Request, op: str, handler: Handler) -> Response:
    try:
        call = await read_call(request, op)
    except EvolutionError as error:
        return render(error)
    entry = evolution.core.traffic.open(op=op, instance=call.name, number=call.number)
    response = await _serve_with_faults(evolution, call, handler)
    entry.close(_outcome(response))
    return response


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

    @property
    def shape(self) -> Shape | None:
        return SHAPES[self.error.params["shape"]] if self.error else None

    @property
    def error_accepted(self) -> bool:
        """Whether WhatsApp gets the message although the caller is told otherwise."""
        if not self.error or not self.shape:
            return False
        accepted = self.error.params["accepted"]
        return self.shape.accepted if accepted is None else bool(accepted)


def draw_plan(faults: Faults, target: Target) -> Plan:
    return Plan(
        latency=faults.take("latency", target),
        reset_before=faults.take("reset_before", target),
        hang=faults.take("hang", target),
        answer_lost=faults.take("answer_lost", target),
        error=faults.take("error", target),
    )


async def _serve_with_faults(evolution: Evolution, call: Call, handler: Handler) -> Response:
    plan = draw_plan(evolution.core.faults, Target(instance=call.name, number=call.number, op=call.op))
    if plan.latency:
        await asyncio.sleep(plan.latency.params["seconds"])
    if plan.reset_before:
        return Cut()
    if plan.hang and not plan.hang.params["accepted"]:
        return Hang()
    if plan.error and not plan.error_accepted:
        return _failure(plan.error, call)
    call.saved = plan.shape is None or plan.shape.saved
    response = await _answer(evolution, call, handler)
    return _spoil(response, plan, call)


def _spoil(response: Response, plan: Plan, call: Call) -> Response:
    """What the caller gets to see of an answer that was made."""
    if plan.answer_lost:
        return Cut()
    if plan.hang:
        return Hang()
    return _failure(plan.error, call) if plan.error else response


def _failure(fault: Fault, call: Call) -> Response:
    quoted = Quoted(instance=call.name, jid=to_jid(call.number), number=call.number)
    error = SHAPES[fault.params["shape"]].build(quoted)
    throttled = {"Retry-After": str(fault.params["retry_after"])} if error.status == 429 else None
    return render(error, throttled)


async def _answer(evolution: Evolution, call: Call, handler: Handler) -> Response:
    try:
        guards.admit(evolution, call)
        _validate(call)
        guards.resolve(evolution, call)
        status, body = await handler(evolution, call)
    except EvolutionError as error:
        return render(error)
    return JSONResponse(body, status_code=status)


def _validate(call: Call) -> None:
    found = violations(call.body, SCHEMAS.get(call.op, {}))
    if not found:
        return
    if call.op in RAW_ERRORS:
        raise EvolutionError(400, {"status": 400, "error": "Bad Request", "message": [found]})
    raise invalid(found)
