"""WhatsApp's Cloud API: the verbs. What they ask is in requests.py, what is posted to us in events.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext as _

from instances.providers.base import Account, Call, Event, OutboundMessage, Receipt, Unhosted, Upload
from instances.providers.graph import errors
from instances.providers.graph.requests import request
from instances.providers.meta import answers, events, requests
from instances.providers.texts import as_text

UPLOAD_TIMEOUT = 60.0
TEMPLATES_AT_ONCE = "100"
NUMBER_FIELDS = "id,verified_name,display_phone_number,quality_rating,throughput"


class MetaCloud(Unhosted):
    """The adapter. An account is a phone number id; it exists at Meta before it does here."""

    name = "meta"
    supports = frozenset({"window", "pair_rate", "templates", "media", "typing"})
    kinds = frozenset(requests.BUILDERS)

    def __init__(self, *, send_timeout: float = 30.0) -> None:
        self.send_timeout = send_timeout

    # --- messages ---

    def send(self, account: Account, message: OutboundMessage) -> Call[Receipt]:
        """Hands the message over. "submitted" means that Meta accepted it, not that it went out.

        Our id goes along as `biz_opaque_callback_data` and comes back in every status: that is how a message whose
        answer was lost is found again.
        """
        body = requests.message(account, message)
        sending = request(
            account, "POST", account.account_id, "messages", body=body, timeout=self.send_timeout
        )
        return Call(sending, read=answers.receipt, sends=True)

    def faults(self, message: OutboundMessage) -> Mapping[str, str]:
        """A text with its title, footer and buttons as lines must fit into one message."""
        if message.kind == "text" and len(as_text(message)) > requests.TEXT_LIMIT:
            limit = {"limit": requests.TEXT_LIMIT}
            return {"text": _("At most %(limit)s characters with title, footer and buttons.") % limit}
        if message.content.get("comment"):
            return {"comment": _("Only Instagram has comments.")}
        return {}

    def wire_text(self, account: Account, message: OutboundMessage) -> str:
        """Never needed to tell messages apart: our id does."""
        return as_text(message)

    def typing(self, account: Account, message: OutboundMessage, *, milliseconds: int) -> Call[None]:
        """Shows "typing" until the message comes, 25 s at most; it marks the person's last message as read."""
        body = requests.seen(message.last_received_id) | {"typing_indicator": {"type": "text"}}
        return Call(request(account, "POST", account.account_id, "messages", body=body), answers.done)

    def seen(self, account: Account, provider_message_id: str) -> Call[None]:
        """Marks a person's message, and those before it, as read."""
        body = requests.seen(provider_message_id)
        return Call(request(account, "POST", account.account_id, "messages", body=body), answers.done)

    def parse(self, body: Any) -> list[Event]:
        """The events of one delivery, which may be about several numbers. ValueError for garbage."""
        return events.parse(body)

    # --- the account ---

    def state(self, account: Account) -> Call[str]:
        """open for a number that the token may use. Raises ProviderError otherwise."""
        query = {"fields": NUMBER_FIELDS}
        return Call(request(account, "GET", account.account_id, query=query), answers.state)

    def presence(self, account: Account) -> Call[None]:
        """The same question: there is no connection that could be dead."""
        return Call(request(account, "GET", account.account_id, query={"fields": "id"}), answers.done)

    def describe(self, account: Account) -> Call[Mapping[str, Any]]:
        """What Meta says of the number: verified_name, display_phone_number, quality_rating."""
        query = {"fields": NUMBER_FIELDS}
        return Call(request(account, "GET", account.account_id, query=query), errors.success)

    def templates(
        self, account: Account, *, after: str = ""
    ) -> Call[tuple[Sequence[Mapping[str, Any]], str]]:
        """A page of the business account's templates, and the cursor of the next page (empty on the last)."""
        query = {"limit": TEMPLATES_AT_ONCE} | ({"after": after} if after else {})
        path = (account.business_id, "message_templates")
        return Call(request(account, "GET", *path, query=query), answers.page)

    def upload(self, account: Account, *, name: str, mime_type: str, data: bytes) -> Call[str]:
        """Uploads a file; gives the id under which messages of this number may use it for 30 days."""
        fields = {"messaging_product": "whatsapp", "type": mime_type}
        upload = Upload(name, mime_type, data, fields)
        path = (account.account_id, "media")
        return Call(request(account, "POST", *path, upload=upload, timeout=UPLOAD_TIMEOUT), answers.media_id)
