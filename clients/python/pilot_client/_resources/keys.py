"""API keys, and what was used with them."""

from __future__ import annotations

from collections.abc import Sequence

from pilot_client._exchange import Flow, Listing, Request
from pilot_client._operations import Resource, X, listing, operation
from pilot_client._records import IssuedKey, Key, Usage
from pilot_client._requests import Instant, given, path


class Keys(Resource[X]):
    """Keys of the key's own project and environment, known by their prefixes."""

    @listing
    def list(self, *, page_size: int = 50) -> Listing[Key]:
        """Keys, ended ones too, in the order of their prefixes."""
        request = Request("GET", "keys", repeatable=True, params={"limit": page_size})
        return self._listing(request, "keys", Key)

    @operation
    def get(self, prefix: str) -> Flow[Key]:
        """A key, without its secret."""
        return self._ask(Request("GET", path("keys", prefix), repeatable=True), Key.of)

    @operation
    def issue(
        self, name: str, *, scopes: Sequence[str], expires_at: Instant | None = None
    ) -> Flow[IssuedKey]:
        """A new key, with scopes that the asking key has itself."""
        body = given(name=name, scopes=[*scopes], expires_at=expires_at)
        return self._ask(Request("POST", "keys", json=body), IssuedKey.of)

    @operation
    def rotate(self, prefix: str, *, overlap_seconds: int | None = None) -> Flow[IssuedKey]:
        """A successor; the old key goes on working for `overlap_seconds`, a day unless given."""
        request = Request("POST", path("keys", prefix, "rotate"), json=given(overlap_seconds=overlap_seconds))
        return self._ask(request, IssuedKey.of)

    @operation
    def revoke(self, prefix: str) -> Flow[None]:
        """Ends a key at once."""
        yield from self._exchange(Request("DELETE", path("keys", prefix), repeatable=True))


class UsageFigures(Resource[X]):
    """How much was sent."""

    @operation
    def get(self, month: str | None = None) -> Flow[Usage]:
        """Messages accepted in a month such as `2026-11`; the current one unless given."""
        return self._ask(Request("GET", "usage", repeatable=True, params=given(month=month)), Usage.of)
