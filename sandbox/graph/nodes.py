"""GET and DELETE /{node}, and the edges that describe a number or subscribe its webhook."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sandbox.graph import hooks, media
from sandbox.graph.accounts import Account
from sandbox.graph.calls import Answer, Call
from sandbox.graph.errors import GraphError, unknown_object
from sandbox.graph.server import Graph


async def show(graph: Graph, call: Call) -> Answer:
    """A number, an Instagram account, or a file."""
    account = call.account
    if call.node in {account.id, "me"}:
        return 200, _described(account)
    if call.node == account.business_id:
        return 200, {"id": account.business_id, "name": "Loja"}
    return 200, media.describe(graph, call, media.find(graph, account, call.node))


async def delete(graph: Graph, call: Call) -> Answer:
    media.find(graph, call.account, call.node)
    graph.objects.delete("media", call.node)
    return 200, {"success": True}


async def phone_numbers(graph: Graph, call: Call) -> Answer:
    numbers = graph.accounts.of_business(call.account.business_id)
    return 200, {"data": [_described(account) for account in numbers]}


async def subscribe(graph: Graph, call: Call) -> Answer:
    """POST /{waba}/subscribed_apps, with an own callback where one is given; it is asked first."""
    url = call.body.get("override_callback_uri")
    if not url:
        return 200, {"success": True}
    changed = replace(call.account, webhook=url, verify_token=str(call.body.get("verify_token", "")))
    if not (await hooks.handshake(changed))["verified"]:
        raise GraphError(100, "(#2200) Callback verification failed", subcode=2200)
    for account in graph.accounts.of_business(call.account.business_id):
        changes = {"webhook": changed.webhook, "verify_token": changed.verify_token}
        graph.accounts.put(account.id, changes)
    return 200, {"success": True}


async def subscriptions(graph: Graph, call: Call) -> Answer:
    app: dict[str, Any] = {"whatsapp_business_api_data": {"id": "1", "name": "Pilot"}}
    if call.account.webhook:
        app["override_callback_uri"] = call.account.webhook
    return 200, {"data": [app]}


def assert_visible(account: Account, node: str) -> None:
    """Raises GraphError 100/33 for a node that the token may not see."""
    if node not in {account.id, account.business_id, "me"}:
        raise unknown_object(node)


def _described(account: Account) -> dict[str, Any]:
    if account.kind == "instagram":
        return {"id": account.id, "user_id": account.id, "username": account.username}
    return {
        "id": account.id,
        "verified_name": "Loja",
        "display_phone_number": account.display_number,
        "quality_rating": account.quality,
        "code_verification_status": "VERIFIED",
        "platform_type": "CLOUD_API",
        "throughput": {"level": "HIGH" if account.messages_per_second > 80 else "STANDARD"},
    }
