"""Can this call reach WhatsApp, and who is the number there?"""

from __future__ import annotations

from sandbox.evolution.calls import Call
from sandbox.evolution.errors import bad_request, not_on_whatsapp, undefined, unhandled
from sandbox.evolution.server import Evolution
from sandbox.faults import Target
from sandbox.numbers import Contact, is_group, to_jid

LOOKUP_FAILURES = {
    "none": undefined("onWhatsApp"),
    "connecting": "Connection Closed",
    "closed": "Connection Closed",
}


def socket_of(evolution: Evolution, call: Call) -> str:
    """The socket this call meets: a dead one behaves as closed while the state still says open. Decided
    once a call, so that a counted fault counts calls."""
    if call.socket is None:
        target = Target(instance=call.instance.name, number=call.number, op=call.op)
        dead = evolution.core.faults.take("dead_socket", target)
        call.socket = "closed" if dead else call.instance.session.socket
    return call.socket


def look_up(evolution: Evolution, number: str, socket: str) -> Contact:
    """Who the number is on WhatsApp. A number in Evolution's cache needs no socket and always exists."""
    directory = evolution.core.directory
    contact = directory.find(number)
    if number.endswith("@lid"):
        return contact
    if is_group(contact.jid):
        if socket != "open" or not contact.exists:
            raise bad_request("[object Object]")
        return contact
    if directory.cached(to_jid(number)):
        return contact
    if socket != "open":
        raise unhandled(LOOKUP_FAILURES[socket])
    if not contact.exists:
        raise not_on_whatsapp(contact.jid, number)
    directory.cache(to_jid(number))
    return contact
