"""Instagram messaging, under either of its hosts: the verbs. What is posted to us is in events.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from instances.providers.base import Account, Call, Event, OutboundMessage, Receipt, Unhosted
from instances.providers.graph.requests import request
from instances.providers.instagram import answers, events, requests
from instances.providers.texts import as_text

TEXT_BYTES = 1000  # Meta counts bytes: an accent is two, an emoji four


class Instagram(Unhosted):
    """The adapter. An account is an Instagram professional account, or the Facebook page that has one."""

    name = "instagram"
    supports = frozenset({"window", "typing"})
    kinds = frozenset({"text", *requests.ATTACHMENTS})

    def __init__(self, *, send_timeout: float = 30.0) -> None:
        self.send_timeout = send_timeout

    # --- messages ---

    def send(self, account: Account, message: OutboundMessage) -> Call[Receipt]:
        """Hands a direct message over, or an answer to a comment. "sent" is all that Instagram ever says of it before
        it was seen; what was sent comes back as an echo, by which a lost answer is found again."""
        if comment := message.content.get("comment"):
            return self._answer_comment(account, message, comment)
        return self._send(account, requests.direct(message))

    def _send(self, account: Account, body: Mapping[str, Any]) -> Call[Receipt]:
        sending = request(account, "POST", _node(account), "messages", body=body, timeout=self.send_timeout)
        return Call(sending, read=answers.receipt, sends=True)

    def _answer_comment(
        self, account: Account, message: OutboundMessage, comment: Mapping[str, str]
    ) -> Call[Receipt]:
        if comment["mode"] == "private":
            return self._send(account, requests.private_reply(message, comment["id"]))
        query = {"message": as_text(message)}
        sending = request(account, "POST", comment["id"], "replies", query=query, timeout=self.send_timeout)
        return Call(sending, read=answers.comment, sends=True)

    def faults(self, message: OutboundMessage) -> Mapping[str, str]:
        """What Instagram has not: captions, uploads, quotations; and its limit, which is in bytes."""
        content, found = message.content, {}
        if message.kind == "text" and len(as_text(message).encode()) > TEXT_BYTES:
            limit = {"limit": TEXT_BYTES}
            found["text"] = _("At most %(limit)s bytes: accents count two, emojis four.") % limit
        for name in ("caption", "media_id", "reply_to", "voice"):
            if content.get(name):
                found[name] = _("Instagram has no such thing.")
        return found

    def wire_text(self, account: Account, message: OutboundMessage) -> str:
        """The text that an echo shows."""
        return requests.text_of(message).strip()

    def typing(self, account: Account, message: OutboundMessage, *, milliseconds: int) -> Call[None]:
        """Shows "typing" until the message comes."""
        body = requests.action(message.to, "typing_on")
        return Call(request(account, "POST", _node(account), "messages", body=body), answers.done)

    def seen(self, account: Account, person: str) -> Call[None]:
        """Marks everything of a person as seen."""
        body = requests.action(person, "mark_seen")
        return Call(request(account, "POST", _node(account), "messages", body=body), answers.done)

    def parse(self, body: Any) -> list[Event]:
        """The events of one delivery, which may be about several accounts. ValueError for garbage."""
        return events.parse(body)

    # --- the account ---

    def state(self, account: Account) -> Call[str]:
        """open for an account that the token may use. Raises ProviderError otherwise."""
        query = {"fields": "id"}
        return Call(request(account, "GET", account.account_id, query=query), answers.state)

    def presence(self, account: Account) -> Call[None]:
        """The same question: there is no connection that could be dead."""
        return Call(request(account, "GET", account.account_id, query={"fields": "id"}), answers.done)

    def describe(self, account: Account) -> Call[Mapping[str, Any]]:
        """What Instagram says of the account: id, username."""
        query = {"fields": "id,username"}
        return Call(request(account, "GET", account.account_id, query=query), answers.success)


def _node(account: Account) -> str:
    """What sends: the page where the account is reached through one, else the account itself."""
    return account.business_id or account.account_id
