"""People, their consent and their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from pilot_client._exchange import Flow, Listing, Request
from pilot_client._operations import Resource, X, listing, operation
from pilot_client._records import CheckedNumber, Contact, Imported, OptIn
from pilot_client._requests import given, path


class Contacts(Resource[X]):
    """The people of the tenant, known by their numbers, however those are written."""

    @listing
    def list(self, *, page_size: int = 50) -> Listing[Contact]:
        """People, in the order of their numbers."""
        request = Request("GET", "contacts", repeatable=True, params={"limit": page_size})
        return self._listing(request, "contacts", Contact)

    @operation
    def get(self, number: str) -> Flow[Contact]:
        """A person and their consent."""
        return self._ask(Request("GET", path("contacts", number), repeatable=True), Contact.of)

    @operation
    def save(self, number: str, *, name: str) -> Flow[Contact]:
        """Keeps a person's name."""
        request = Request("PUT", path("contacts", number), repeatable=True, json={"name": name})
        return self._ask(request, Contact.of)

    @operation
    def opt_in(self, number: str) -> Flow[OptIn]:
        """What is on record of a person's consent. Raises NotFound when nothing is."""
        return self._ask(Request("GET", path("contacts", number, "opt-in"), repeatable=True), OptIn.of)

    @operation
    def grant(self, number: str, *, source: str, evidence: str | None = None) -> Flow[OptIn]:
        """Records that a person agreed. It also ends an earlier opt-out, so it is not repeated by itself."""
        body = given(source=source, evidence=evidence)
        return self._ask(Request("PUT", path("contacts", number, "opt-in"), json=body), OptIn.of)

    @operation
    def revoke(self, number: str, *, source: str | None = None) -> Flow[OptIn]:
        """Records that a person does not want to be written to."""
        address = path("contacts", number, "opt-in")
        request = Request("DELETE", address, repeatable=True, params=given(source=source))
        return self._ask(request, OptIn.of)

    @operation
    def import_csv(self, file: bytes) -> Flow[Imported]:
        """Takes in a CSV file in UTF-8 with the columns number, name, opt_in, source and evidence."""
        headers = {"Content-Type": "text/csv"}
        return self._ask(Request("POST", "contacts/import", content=file, headers=headers), Imported.of)

    @operation
    def export_csv(self) -> Flow[bytes]:
        """All people as a CSV file, in the form that an import takes."""
        answer = yield from self._exchange(
            Request("GET", "contacts/export", repeatable=True, headers={"Accept": "*/*"})
        )
        return answer.content


class Numbers(Resource[X]):
    """Telephone numbers."""

    @operation
    def check(self, numbers: Sequence[str]) -> Flow[Sequence[CheckedNumber]]:
        """What is known of up to 100 numbers, in their order. WhatsApp is not asked."""
        request = Request("POST", "numbers/check", repeatable=True, json={"numbers": [*numbers]})
        return self._ask(request, lambda data: [CheckedNumber.of(each) for each in data["numbers"]])
