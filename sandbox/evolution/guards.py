"""Evolution's guards, in its order: the instance exists, the name is free, the key is right."""

from __future__ import annotations

from sandbox.evolution.calls import Call
from sandbox.evolution.errors import envelope, unauthorized, undefined, unhandled, unknown_instance
from sandbox.evolution.server import Evolution

CREATE = "instance/create"
LIST = "instance/fetchInstances"
UNNAMED = frozenset({CREATE, LIST})

# What JavaScript fails to read when the query string names an instance that is not there.
OVERRIDDEN_MEMBERS = {
    "message/sendText": "textMessage",
    "message/sendButtons": "buttonMessage",
    "message/sendMedia": "mediaMessage",
    "message/sendTemplate": "templateMessage",
}


def admit(evolution: Evolution, call: Call) -> None:
    """Raise EvolutionError when the call may not go on. An unknown instance is told even to strangers."""
    if call.op not in UNNAMED and evolution.instances.get(call.name) is None:
        raise unknown_instance(call.name)
    if call.op == CREATE and evolution.instances.get(call.name):
        raise envelope(403, [f'This name "{call.name}" is already in use.'])
    if not _authorised(evolution, call):
        raise unauthorized()


def _authorised(evolution: Evolution, call: Call) -> bool:
    if call.key == evolution.core.config.api_key:
        return True
    if call.key is None or call.op == CREATE:
        return False
    if call.op == LIST:
        return bool(evolution.instances.with_token(call.key))
    instance = evolution.instances.get(call.name)
    return instance is not None and instance.token == call.key


def resolve(evolution: Evolution, call: Call) -> None:
    """Settle which instance is acted on. The query string overrides the path after the guards have passed:
    a hole of the real server, kept so that its callers are tested against it."""
    if call.op in UNNAMED:
        return
    call.resolved = evolution.instances.get(call.query.get("instanceName", call.name))
    if call.resolved is None:
        raise unhandled(undefined(OVERRIDDEN_MEMBERS.get(call.op, "instance")))
