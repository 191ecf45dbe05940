"""Evolution API 2.3.7: the verbs. What they ask is in requests.py, what is answered and posted in answers.py
and events.py."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from instances.providers.base import (
    Account,
    Call,
    Event,
    Found,
    HookConfig,
    OutboundMessage,
    Pairing,
    Receipt,
)
from instances.providers.evolution import answers, events, lookup, requests

TYPING_MARGIN = 5.0  # seconds


class Evolution:
    """The adapter. `send_timeout` is in seconds; a lost answer is looked up, so it need not outlast Evolution's
    own 60 s."""

    name = "evolution"
    supports = frozenset({"typing", "find", "pairing", "restart"})
    kinds = frozenset({"text"})
    # What Pilot subscribes to: receipts, answers and the connection. Contacts and chats are noise by the thousand.
    hook_events: tuple[str, ...] = (
        "CONNECTION_UPDATE",
        "LOGOUT_INSTANCE",
        "MESSAGES_UPDATE",
        "MESSAGES_UPSERT",
        "QRCODE_UPDATED",
        "REMOVE_INSTANCE",
        "SEND_MESSAGE",
        "STATUS_INSTANCE",
    )

    def __init__(self, *, send_timeout: float = 30.0) -> None:
        self.send_timeout = send_timeout

    # --- messages ---

    def send(self, account: Account, message: OutboundMessage) -> Call[Receipt]:
        """Hands the message over. The receipt says "submitted": not yet accepted by WhatsApp.

        A receipt without an id: the message went out, and only Evolution's own copy of it was lost.
        """
        path, body = requests.message(account, message)
        request = requests.request(account, "POST", path, body, timeout=self.send_timeout)
        return Call(request, read=answers.receipt, sends=True)

    def faults(self, message: OutboundMessage) -> Mapping[str, str]:
        """None: messaging's limits are those of WhatsApp."""
        return {}

    def wire_text(self, account: Account, message: OutboundMessage) -> str:
        """The text of `message` as Evolution's events and look-ups show it, without space around it."""
        return requests.wire_text(account, message)

    def typing(self, account: Account, message: OutboundMessage, *, milliseconds: int) -> Call[None]:
        """Shows "typing"; the answer comes after `milliseconds`."""
        body = {"number": requests.number(message), "presence": "composing", "delay": milliseconds}
        timeout = milliseconds / 1000 + TYPING_MARGIN
        request = requests.request(account, "POST", "chat/sendPresence", body, timeout=timeout)
        return Call(request, read=answers.done)

    def find(self, account: Account, message: OutboundMessage, *, now: datetime) -> Call[Found]:
        """Looks for the message among those Evolution stored: by its id, else by recipient, text and time.

        Never NOT_SENT: Evolution stores a message after sending it, and only where it is told to, so a miss
        proves nothing. Without an id exactly one match counts; two could be this message and its twin.
        """
        search = lookup.Search(message, self.wire_text(account, message), message.attempted_at or now)
        request = requests.request(account, "POST", "chat/findMessages", search.body())
        return Call(request, read=search.read)

    def parse(self, body: Any) -> list[Event]:
        """The events of one webhook delivery; none of what Pilot has no use for. ValueError for garbage."""
        return events.parse(body)

    # --- the instance ---

    def create(self, account: Account, *, hook: HookConfig) -> Call[Mapping[str, Any]]:
        """Makes the instance with its webhook; gives Evolution's description of it.

        A name in use counts as made, with an empty description: names are ours and random, so it is the work of
        an earlier call whose answer was lost.
        """
        body = requests.instance(account, hook)
        return Call(requests.request(account, "POST", "instance/create", body, named=False), answers.created)

    def connect(self, account: Account, *, number: str = "") -> Call[Pairing]:
        """Starts connecting and gives the current code. `number` (E.164) asks for a pairing code too."""
        query = {"number": number.removeprefix("+")} if number else {}
        return Call(requests.request(account, "GET", "instance/connect", query=query), answers.pairing)

    def restart(self, account: Account) -> Call[str]:
        """Closes the socket of an open instance and opens a new one. A closed one is refused: connect it."""
        return Call(requests.request(account, "POST", "instance/restart"), answers.state)

    def logout(self, account: Account) -> Call[None]:
        """Unlinks the number. Evolution answers before it is done. Not connected counts as done."""
        return Call(requests.request(account, "DELETE", "instance/logout"), answers.logged_out)

    def delete(self, account: Account) -> Call[None]:
        """Deletes the instance, some time after the answer. Already deleted counts as done."""
        return Call(requests.request(account, "DELETE", "instance/delete"), answers.deleted)

    def state(self, account: Account) -> Call[str]:
        """open, connecting or closed, as Evolution remembers it; it may say open of a dead socket."""
        return Call(requests.request(account, "GET", "instance/connectionState"), answers.state)

    def presence(self, account: Account) -> Call[None]:
        """Says "available" through the socket. Raises instance_disconnected when there is no socket."""
        body = {"presence": "available"}
        return Call(requests.request(account, "POST", "instance/setPresence", body), answers.done)

    def set_hook(self, account: Account, hook: HookConfig | None) -> Call[None]:
        """Sets the webhook; None turns it off."""
        body = {"webhook": requests.hook(hook) if hook else {"enabled": False, "url": "", "events": []}}
        return Call(requests.request(account, "POST", "webhook/set", body), answers.done)

    def get_hook(self, account: Account) -> Call[HookConfig | None]:
        """The webhook as it is; None when there is none or it is off."""
        return Call(requests.request(account, "GET", "webhook/find"), answers.hook)
