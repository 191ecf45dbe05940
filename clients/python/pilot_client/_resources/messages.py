"""Sending messages, and what becomes of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pilot_client._errors import StillWaiting
from pilot_client._exchange import Flow, Listing, Pause, Request
from pilot_client._operations import Resource, X, listing, operation
from pilot_client._records import BatchResult, Event, Message, Why
from pilot_client._requests import Instant, NewMessage, given, path, plain


class Messages(Resource[X]):
    """Messages of the key's project and environment."""

    @operation
    def send(
        self,
        to: str,
        *,
        template: str | None = None,
        variables: Mapping[str, str | int | float] | None = None,
        text: str | None = None,
        title: str | None = None,
        footer: str | None = None,
        buttons: Sequence[Mapping[str, str]] | None = None,
        content: Mapping[str, Any] | None = None,
        category: str | None = None,
        instance: str | None = None,
        urgent: bool | None = None,
        scheduled_at: Instant | None = None,
        deliver_until: Instant | None = None,
        skip_opt_in_validation: bool | None = None,
        refuse_if_late: bool | None = None,
        metadata: Mapping[str, str] | None = None,
        reference: str | None = None,
        idempotency_key: str | None = None,
    ) -> Flow[Message]:
        """Sends a `template` with its `variables`, a `text`, or a `content` of another kind.

        Retried when an answer is lost, which is safe because of the Idempotency-Key. Give one of your own, such as
        `order-1042-sent`, and it stays safe when your program dies and begins again. Raises Refusal.
        """
        message = given(
            to=to,
            template=template,
            variables=variables,
            text=text,
            title=title,
            footer=footer,
            buttons=buttons,
            content=content,
            category=category,
            instance=instance,
            urgent=urgent,
            scheduled_at=scheduled_at,
            deliver_until=deliver_until,
            skip_opt_in_validation=skip_opt_in_validation,
            refuse_if_late=refuse_if_late,
            metadata=metadata,
            reference=reference,
        )
        return self._ask(_once("messages", message, idempotency_key), Message.of)

    @operation
    def send_batch(
        self, messages: Sequence[NewMessage], *, idempotency_key: str | None = None
    ) -> Flow[BatchResult]:
        """Sends up to 1,000 messages. One that is refused does not affect the others: see each of the `results`."""
        items = [{name: plain(value, name=name) for name, value in each.items()} for each in messages]
        return self._ask(_once("messages/batch", {"messages": items}, idempotency_key), BatchResult.of)

    @operation
    def get(self, message_id: str) -> Flow[Message]:
        """A message as it is now."""
        return self._get(message_id)

    @listing
    def list(
        self,
        *,
        status: str | None = None,
        template: str | None = None,
        instance: str | None = None,
        to: str | None = None,
        reference: str | None = None,
        metadata: Mapping[str, str] | None = None,
        created_after: Instant | None = None,
        created_before: Instant | None = None,
        page_size: int = 50,
    ) -> Listing[Message]:
        """Messages, newest first."""
        filters = given(
            status=status,
            template=template,
            instance=instance,
            to=to,
            reference=reference,
            created_after=created_after,
            created_before=created_before,
            limit=page_size,
        )
        filters |= {f"metadata[{name}]": value for name, value in (metadata or {}).items()}
        return self._listing(Request("GET", "messages", repeatable=True, params=filters), "messages", Message)

    @operation
    def events(self, message_id: str) -> Flow[Sequence[Event]]:
        """Everything that happened to a message, in the order in which it became known."""
        request = Request("GET", path("messages", message_id, "events"), repeatable=True)
        return self._ask(request, lambda data: [Event.of(event) for event in data["events"]])

    @operation
    def why(self, message_id: str) -> Flow[Why]:
        """Why a message has not gone out yet, and when it should."""
        return self._ask(Request("GET", path("messages", message_id, "why"), repeatable=True), Why.of)

    @operation
    def cancel(self, message_id: str) -> Flow[Message]:
        """Calls a waiting message back. Raises NotCancellable when it does not wait any more."""
        request = Request("POST", path("messages", message_id, "cancel"), repeatable=True)
        return self._ask(request, Message.of)

    @operation
    def wait(
        self, message_id: str, *, until: str = "delivered", within: float = 120, every: float = 1
    ) -> Flow[Message]:
        """Waits until a message has got as far as `until`, or has failed or was cancelled.

        `until` is one of queued, sending, unconfirmed, submitted, sent, delivered, read and played; `within` and
        `every` are seconds. For a script: a program is better told by webhooks. Raises StillWaiting.
        """
        return self._wait(message_id, until, within, every)

    def _get(self, message_id: str) -> Flow[Message]:
        return self._ask(Request("GET", path("messages", message_id), repeatable=True), Message.of)

    def _wait(self, message_id: str, until: str, within: float, every: float) -> Flow[Message]:
        deadline = time.monotonic() + within
        while True:
            message = yield from self._get(message_id)
            if message.ended or message.reached(until):
                return message
            if time.monotonic() + every > deadline:
                raise StillWaiting(message)
            yield Pause(every)


def _once(address: str, body: Mapping[str, Any], idempotency_key: str | None) -> Request:
    """A POST that may be repeated, because the server knows it by its key."""
    headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    return Request("POST", address, repeatable=True, json=body, headers=headers)
