"""The webhook/* endpoints, and the webhook given when an instance is created."""

from __future__ import annotations

from typing import Any

from sandbox.evolution.calls import Answer, Call
from sandbox.evolution.errors import undefined, unhandled
from sandbox.evolution.formats import cuid, iso_now
from sandbox.evolution.instances import Instance
from sandbox.evolution.schemas import EVENTS
from sandbox.evolution.server import Evolution


async def set_webhook(evolution: Evolution, call: Call) -> Answer:
    asked = call.body["webhook"]
    if asked["enabled"] and "events" not in asked:
        raise unhandled(undefined("length"))
    call.instance.webhook = merge_webhook(call.instance, asked)
    evolution.instances.save(call.instance)
    return 201, call.instance.webhook


async def find_webhook(_evolution: Evolution, call: Call) -> Answer:
    return 200, call.instance.webhook


def merge_webhook(instance: Instance, asked: dict[str, Any]) -> dict[str, Any]:
    """The stored form: headers, byEvents and base64 keep their old values when not given; an enabled
    webhook with no events gets them all, a disabled one gets none."""
    old = instance.webhook or {}
    events = (asked["events"] or list(EVENTS)) if asked["enabled"] else []
    return {
        "id": old.get("id") or cuid(),
        "url": asked["url"],
        "headers": asked.get("headers", old.get("headers")),
        "enabled": asked["enabled"],
        "events": events,
        "webhookByEvents": asked.get("byEvents", old.get("webhookByEvents", False)),
        "webhookBase64": asked.get("base64", old.get("webhookBase64", False)),
        "createdAt": old.get("createdAt") or iso_now(),
        "updatedAt": iso_now(),
        "instanceId": instance.id,
    }


def wipe_webhook(evolution: Evolution, instance: Instance) -> None:
    """What some servers were seen to do on restart: the row stays, its content is gone."""
    if instance.webhook:
        instance.webhook |= {"url": "", "headers": None, "enabled": False, "events": []}
        evolution.instances.save(instance)
