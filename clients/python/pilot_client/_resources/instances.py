"""The numbers that messages are sent from, their queues, and files for them."""

from __future__ import annotations

from pilot_client._exchange import Flow, Listing, Request
from pilot_client._operations import Resource, X, listing, operation
from pilot_client._records import Instance, Media, Pairing, Queue
from pilot_client._requests import given, path


class Instances(Resource[X]):
    """The tenant's instances, known by their names."""

    @listing
    def list(self, *, page_size: int = 50) -> Listing[Instance]:
        """Instances, in the order of their names."""
        request = Request("GET", "instances", repeatable=True, params={"limit": page_size})
        return self._listing(request, "instances", Instance)

    @operation
    def get(self, name: str) -> Flow[Instance]:
        """An instance and how it is."""
        return self._ask(Request("GET", path("instances", name), repeatable=True), Instance.of)

    @operation
    def create(self, name: str) -> Flow[Instance]:
        """A new instance, to be paired. Raises Conflict (`name_taken`)."""
        return self._ask(Request("POST", "instances", json={"name": name}), Instance.of)

    @operation
    def remove(self, name: str) -> Flow[None]:
        """Removes an instance for good; what waits on it fails."""
        yield from self._exchange(Request("DELETE", path("instances", name)))

    @operation
    def pair(self, name: str, *, number: str | None = None) -> Flow[Pairing]:
        """The code to scan, and with the telephone's `number` one to type. Ask again for the next."""
        request = Request("POST", path("instances", name, "pair"), json=given(number=number))
        return self._ask(request, Pairing.of)

    @operation
    def restart(self, name: str) -> Flow[Instance]:
        """Gives an instance a new connection; its number stays linked."""
        return self._ask(Request("POST", path("instances", name, "restart")), Instance.of)

    @operation
    def logout(self, name: str) -> Flow[Instance]:
        """Unlinks an instance's number."""
        return self._ask(Request("POST", path("instances", name, "logout")), Instance.of)

    @operation
    def pause(self, name: str) -> Flow[Instance]:
        """Puts an instance's sending on hold; its messages keep their deadlines."""
        return self._ask(Request("POST", path("instances", name, "pause"), repeatable=True), Instance.of)

    @operation
    def resume(self, name: str) -> Flow[Instance]:
        """Goes on sending."""
        return self._ask(Request("POST", path("instances", name, "resume"), repeatable=True), Instance.of)


class Queues(Resource[X]):
    """What waits on the tenant's instances."""

    @listing
    def list(self, *, page_size: int = 50) -> Listing[Queue]:
        """The queue of each instance, in the order of their names."""
        request = Request("GET", "queues", repeatable=True, params={"limit": page_size})
        return self._listing(request, "queues", Queue)


class MediaFiles(Resource[X]):
    """Files that are uploaded once and named in many messages (WhatsApp Cloud API)."""

    @operation
    def upload(self, file: bytes, *, instance: str, filename: str, mime_type: str) -> Flow[Media]:
        """Uploads a file. The same content is kept once, so that repeating it does no harm."""
        params = {"instance": instance, "filename": filename}
        headers = {"Content-Type": mime_type}
        request = Request("POST", "media", repeatable=True, params=params, content=file, headers=headers)
        return self._ask(request, Media.of)
