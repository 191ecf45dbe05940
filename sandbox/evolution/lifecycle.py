"""The instance/* endpoints: create, connect, restart, log out, delete, list."""

from __future__ import annotations

from typing import Any

from sandbox.evolution.calls import Answer, Call
from sandbox.evolution.errors import bad_request, envelope, undefined, unhandled
from sandbox.evolution.formats import instance_token, random_uuid
from sandbox.evolution.hooks import merge_webhook
from sandbox.evolution.instances import BAILEYS, BUSINESS, INTEGRATIONS, SETTINGS, Instance
from sandbox.evolution.reach import socket_of
from sandbox.evolution.server import Evolution

CONNECT_WAIT = 2.0
CREATE_WAIT = 5.0
DEAD_END = {"error": True, "message": "[object Object]"}
NOT_THERE = ("Chatwoot", "Proxy", "Rabbitmq", "Nats", "Sqs", "Websocket")

# Name of a webhook setting in the request -> in the answer to create, which repeats only what was given.
WEBHOOK_ECHO = {
    "url": "webhookUrl",
    "headers": "webhookHeaders",
    "byEvents": "webhookByEvents",
    "base64": "webhookBase64",
}


async def create(evolution: Evolution, call: Call) -> Answer:
    instance = _new_instance(call.body)
    webhook = call.body.get("webhook") or {}
    if webhook:
        if "events" not in webhook:
            raise bad_request(undefined("length"))
        instance.webhook = merge_webhook(instance, {"url": "", **webhook, "enabled": True})
    evolution.instances.add(instance)
    identity = {"instanceName": instance.name, "instanceId": instance.id}
    evolution.events.emit(instance, "instance.create", identity)
    qr = await _first_qr(evolution, instance) if call.body.get("qrcode") else {}
    return 201, _created(evolution, instance, webhook) | qr


def _new_instance(body: dict[str, Any]) -> Instance:
    integration = body.get("integration")
    if integration not in INTEGRATIONS:
        raise bad_request("Invalid integration")
    if not isinstance(body.get("instanceName"), str):
        raise unhandled("Argument `name`: Invalid value provided.")
    _check_business(body)
    instance = Instance(
        name=body["instanceName"],
        id=random_uuid(),
        integration=integration,
        token=body.get("token") or instance_token(),
        number=body.get("number"),
        business_id=body.get("businessId"),
        settings={name: body.get(name, default) for name, default in SETTINGS.items()},
    )
    if integration != BAILEYS:
        instance.status = instance.session.state = instance.session.socket = "open"
    return instance


def _check_business(body: dict[str, Any]) -> None:
    for name in ("token", "number") if body["integration"] == BUSINESS else ():
        if not body.get(name):
            raise bad_request(f"{name} is required")


async def _first_qr(evolution: Evolution, instance: Instance) -> dict[str, Any]:
    if instance.integration != BAILEYS:
        return {}
    evolution.connections.start(instance, number=instance.number)
    await evolution.connections.wait(CREATE_WAIT)
    return {"qrcode": instance.session.qr.describe()}


def _created(evolution: Evolution, instance: Instance, webhook: dict[str, Any]) -> dict[str, Any]:
    business = instance.integration == BUSINESS
    return {
        "instance": {
            "instanceName": instance.name,
            "instanceId": instance.id,
            "integration": instance.integration,
            "webhookWaBusiness": f"{evolution.core.config.url}/webhook/meta" if business else None,
            "accessTokenWaBusiness": "evolution" if business else "",
            "status": instance.session.state,
        },
        "hash": instance.token,
        "webhook": {shown: webhook[name] for name, shown in WEBHOOK_ECHO.items() if name in webhook},
        "websocket": {},
        "rabbitmq": {},
        "nats": {},
        "sqs": {},
        "settings": instance.settings,
    }


async def connection_state(_evolution: Evolution, call: Call) -> Answer:
    return 200, call.instance.state_body()


async def connect(evolution: Evolution, call: Call) -> Answer:
    """Open: the state. Connecting: the QR now on offer. Closed: start, wait two seconds, then the same."""
    instance = call.instance
    if instance.session.state == "open":
        return 200, instance.state_body()
    if instance.session.state == "close":
        evolution.connections.start(instance, number=call.query.get("number"))
        await evolution.connections.wait(CONNECT_WAIT)
    return 200, instance.session.qr.describe()


async def restart(evolution: Evolution, call: Call) -> Answer:
    """Failures are a 200. The state of an open instance is read before its socket is seen to close."""
    instance = call.instance
    if instance.session.state == "close":
        return 200, DEAD_END
    if instance.session.state == "connecting":
        return 200, instance.session.qr.describe()
    body = instance.state_body()
    evolution.connections.restart(instance)
    return 200, body


async def log_out(evolution: Evolution, call: Call) -> Answer:
    """Answered before it happens."""
    if call.instance.session.state == "close":
        raise bad_request(f'The "{call.instance.name}" instance is not connected')
    evolution.core.background.spawn(evolution.connections.log_out(call.instance))
    return 200, _success("Instance logged out")


async def delete(evolution: Evolution, call: Call) -> Answer:
    """Answered before it happens; asking again meanwhile changes nothing."""
    if not call.instance.session.deleting:
        call.instance.session.deleting = True
        evolution.core.background.spawn(evolution.connections.remove(call.instance))
    return 200, _success("Instance deleted")


def _success(text: str) -> dict[str, Any]:
    return {"status": "SUCCESS", "error": False, "response": {"message": text}}


async def set_presence(evolution: Evolution, call: Call) -> Answer:
    socket = socket_of(evolution, call)
    if socket == "none":
        raise bad_request(f"TypeError: {undefined('sendPresenceUpdate')}")
    if socket != "open":
        raise bad_request("Error: Connection Closed")
    return 201, {"presence": call.body["presence"]}


async def fetch_instances(evolution: Evolution, call: Call) -> Answer:
    """All of them, one asked for by name, id or number, or those sharing the token of the caller."""
    if call.key != evolution.core.config.api_key:
        found = evolution.instances.with_token(call.key or "")
    else:
        found = _asked_for(evolution, call.query)
    return 200, [_row(evolution, instance) for instance in found]


def _asked_for(evolution: Evolution, query: dict[str, str]) -> list[Instance]:
    for parameter, field in (("instanceName", "name"), ("instanceId", "id"), ("number", "number")):
        if wanted := query.get(parameter):
            found = [i for i in evolution.instances.all() if getattr(i, field) == wanted]
            if not found:
                raise envelope(404, [f'Instance "{wanted}" not found'])
            return found
    return evolution.instances.all()


def _row(evolution: Evolution, instance: Instance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "name": instance.name,
        "connectionStatus": instance.status,
        "ownerJid": instance.owner_jid,
        "profileName": instance.profile_name,
        "profilePicUrl": None,
        "integration": instance.integration,
        "number": instance.number,
        "businessId": instance.business_id,
        "token": instance.token,
        "clientName": "evolution",
        "disconnectionReasonCode": instance.disconnection_code,
        "disconnectionObject": instance.disconnection_object,
        "disconnectionAt": instance.disconnection_at,
        "createdAt": instance.created_at,
        "updatedAt": instance.updated_at,
        **dict.fromkeys(NOT_THERE),
        "Setting": _settings_row(instance),
        "_count": evolution.mailbox.counts(instance.id),
    }


def _settings_row(instance: Instance) -> dict[str, Any]:
    return {
        "id": instance.settings_id,
        **instance.settings,
        "createdAt": instance.created_at,
        "updatedAt": instance.created_at,
        "instanceId": instance.id,
    }
