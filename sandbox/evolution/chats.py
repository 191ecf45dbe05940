"""The chat/* endpoints: typing, number checks, and looking up messages and receipts."""

from __future__ import annotations

import asyncio
from typing import Any

from sandbox.evolution.calls import Answer, Call
from sandbox.evolution.errors import EvolutionError, bad_request, undefined
from sandbox.evolution.reach import LOOKUP_FAILURES, look_up, socket_of
from sandbox.evolution.server import Evolution
from sandbox.faults import Target
from sandbox.numbers import Contact, is_group, to_jid

PAGE_SIZE = 50
SOCKET_CLOSED = {"isBoom": True, "output": {"statusCode": 428, "payload": {}}}


async def send_presence(evolution: Evolution, call: Call) -> Answer:
    """Shows the presence for `delay` ms and answers only then."""
    target = Target(instance=call.instance.name, number=call.number, op=call.op)
    if evolution.core.faults.take("typing_fails", target):
        raise bad_request(f"TypeError: {undefined('sendPresenceUpdate')}")
    socket = socket_of(evolution, call)
    _recipient(evolution, call, socket)
    if socket != "open":
        raise bad_request("Error: Connection Closed")
    await asyncio.sleep(call.body["delay"] / 1000)
    return 201, {"presence": call.body["presence"]}


def _recipient(evolution: Evolution, call: Call, socket: str) -> Contact:
    """Every failure of the look-up comes out as a 400 made from a JavaScript error."""
    try:
        return look_up(evolution, call.number, socket)
    except EvolutionError as error:
        if error.status == 400:
            raise bad_request("[object Object]") from error
        name = "TypeError" if socket == "none" else "Error"
        raise bad_request(f"{name}: {LOOKUP_FAILURES[socket]}") from error


async def whatsapp_numbers(evolution: Evolution, call: Call) -> Answer:
    """Groups before people; errors raw, outside the envelope."""
    if "numbers" not in call.body:
        raise EvolutionError(400, {})
    numbers = [str(number) for number in call.body["numbers"]]
    people = [number for number in numbers if not is_group(to_jid(number))]
    socket = socket_of(evolution, call)
    if socket != "open" and not all(_known(evolution, number) for number in people):
        raise EvolutionError(400, {} if socket == "none" else SOCKET_CLOSED)
    groups = [number for number in numbers if is_group(to_jid(number))]
    return 200, [_check(evolution, number, socket) for number in [*groups, *people]]


def _known(evolution: Evolution, number: str) -> bool:
    return number.endswith("@lid") or evolution.core.directory.cached(to_jid(number))


def _check(evolution: Evolution, number: str, socket: str) -> dict[str, Any]:
    directory = evolution.core.directory
    contact = directory.find(number)
    exists = contact.exists and (socket == "open" or not is_group(contact.jid))
    exists = exists or _known(evolution, number)
    if exists and not is_group(contact.jid) and not number.endswith("@lid"):
        directory.cache(to_jid(number))
    return {
        "jid": contact.jid,
        "exists": exists,
        "number": number,
        **({"name": contact.name} if contact.name else {}),
        **({"lid": "lid"} if contact.lid or number.endswith("@lid") else {}),
    }


async def find_messages(evolution: Evolution, call: Call) -> Answer:
    where = call.body.get("where", {})
    page, size = _page(call)
    return 200, {"messages": evolution.mailbox.find(call.instance.id, where, page=page, size=size)}


async def find_status_message(evolution: Evolution, call: Call) -> Answer:
    where = call.body.get("where", {})
    page, size = _page(call)
    return 200, evolution.mailbox.find_updates(call.instance.id, where, page=page, size=size)


def _page(call: Call) -> tuple[int, int]:
    """Page number from 1 and page size, which Evolution calls offset."""
    return max(1, call.body.get("page", 1)), max(1, call.body.get("offset", PAGE_SIZE))
