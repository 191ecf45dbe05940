"""Webhook endpoints and their deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilot_client._exchange import Flow, Listing, Request
from pilot_client._operations import Resource, X, listing, operation
from pilot_client._records import Delivery, Endpoint, EventType, Replay
from pilot_client._requests import Instant, given, path


class Webhooks(Resource[X]):
    """Endpoints of the key's project and environment. To check a call that came in, use pilot_client.verify()."""

    @listing
    def list(self, *, page_size: int = 50) -> Listing[Endpoint]:
        """Endpoints, oldest first."""
        request = Request("GET", "webhooks", repeatable=True, params={"limit": page_size})
        return self._listing(request, "webhooks", Endpoint)

    @operation
    def get(self, endpoint_id: str) -> Flow[Endpoint]:
        """An endpoint and how it is."""
        return self._ask(Request("GET", path("webhooks", endpoint_id), repeatable=True), Endpoint.of)

    @operation
    def create(
        self,
        url: str,
        *,
        types: Sequence[str] | None = None,
        description: str | None = None,
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Flow[Endpoint]:
        """A new endpoint; without `types` it is told everything. Its `secret` is not shown again."""
        body = given(url=url, types=types, description=description, version=version, headers=headers)
        return self._ask(Request("POST", "webhooks", json=body), Endpoint.of)

    @operation
    def change(
        self,
        endpoint_id: str,
        *,
        url: str | None = None,
        types: Sequence[str] | None = None,
        description: str | None = None,
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
        enabled: bool | None = None,
        catch_up: bool | None = None,
    ) -> Flow[Endpoint]:
        """Changes what is given. `catch_up` with `enabled`: also deliver what happened while it was off."""
        body = given(
            url=url,
            types=types,
            description=description,
            version=version,
            headers=headers,
            enabled=enabled,
            catch_up=catch_up,
        )
        return self._ask(Request("PATCH", path("webhooks", endpoint_id), json=body), Endpoint.of)

    @operation
    def remove(self, endpoint_id: str) -> Flow[None]:
        """Removes an endpoint and the log of its deliveries."""
        yield from self._exchange(Request("DELETE", path("webhooks", endpoint_id)))

    @operation
    def rotate_secret(self, endpoint_id: str, *, overlap_seconds: int | None = None) -> Flow[str]:
        """A new secret; until the old one ends, calls carry a signature by each."""
        address, body = path("webhooks", endpoint_id, "rotate-secret"), given(overlap_seconds=overlap_seconds)
        return self._ask(Request("POST", address, json=body), lambda data: str(data["secret"]))

    @operation
    def test(self, endpoint_id: str, *, type: str | None = None) -> Flow[Delivery]:
        """Sends an event's example."""
        request = Request("POST", path("webhooks", endpoint_id, "test"), json=given(type=type))
        return self._ask(request, Delivery.of)

    @operation
    def replay(
        self,
        endpoint_id: str,
        *,
        since: Instant,
        until: Instant | None = None,
        everything: bool | None = None,
    ) -> Flow[Replay]:
        """Delivers a time again: what did not arrive in it, or `everything`."""
        body = given(since=since, until=until, everything=everything)
        return self._ask(Request("POST", path("webhooks", endpoint_id, "replay"), json=body), Replay.of)

    @listing
    def deliveries(
        self,
        endpoint_id: str,
        *,
        status: str | None = None,
        type: str | None = None,
        created_after: Instant | None = None,
        created_before: Instant | None = None,
        page_size: int = 50,
    ) -> Listing[Delivery]:
        """An endpoint's deliveries, newest first."""
        params = given(
            status=status,
            type=type,
            created_after=created_after,
            created_before=created_before,
            limit=page_size,
        )
        address = path("webhooks", endpoint_id, "deliveries")
        return self._listing(Request("GET", address, repeatable=True, params=params), "deliveries", Delivery)

    @operation
    def delivery(self, endpoint_id: str, delivery_id: str) -> Flow[Delivery]:
        """A delivery; its `raw` has the payload and the log of its attempts."""
        address = path("webhooks", endpoint_id, "deliveries", delivery_id)
        return self._ask(Request("GET", address, repeatable=True), Delivery.of)

    @operation
    def resend(self, endpoint_id: str, delivery_id: str) -> Flow[Delivery]:
        """Sends a delivery again, with the same id."""
        address = path("webhooks", endpoint_id, "deliveries", delivery_id, "resend")
        return self._ask(Request("POST", address), Delivery.of)

    @operation
    def examine(self, endpoint_id: str, *, headers: Mapping[str, str], body: str) -> Flow[str]:
        """Asks Pilot what is wrong with a call that your program refuses: `valid`, or the first fault."""
        call = {"headers": dict(headers), "body": body}
        request = Request("POST", path("webhooks", endpoint_id, "verify"), repeatable=True, json=call)
        return self._ask(request, lambda data: str(data["finding"]))

    @operation
    def event_types(self) -> Flow[Sequence[EventType]]:
        """The events that there are."""
        request = Request("GET", "webhooks/event-types", repeatable=True)
        return self._ask(request, lambda data: [EventType.of(each) for each in data["event_types"]])
