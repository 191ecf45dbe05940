"""The people a tenant writes to: kept one by one, or taken from a file of many."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from accounts.models import Tenant
from messaging import numbers, opt_ins
from messaging.models import Contact, OptIn
from pilot import sql
from pilot.errors import PilotError

COLUMNS = ("number", "name", "opt_in", "source", "evidence")
MOST_ROWS = 10_000
AT_ONCE = 500
SPREADSHEET = 1000  # rows read from the database at a time for an export
LIMITS = {"name": 120, "source": 40, "evidence": 2000}
ANSWERS = {
    "": None,
    "yes": True,
    "true": True,
    "1": True,
    "sim": True,
    "no": False,
    "false": False,
    "0": False,
}
ANSWERS |= {"não": False, "nao": False}
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run


class BadFile(PilotError):
    """A file that cannot be read as a whole. `fields["body"]` says why."""

    code = "bad_file"


class RowFault(NamedTuple):
    """What is wrong with one row of a file: 1 is the first after the header."""

    row: int
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a file: how many rows were taken in, and what is wrong with the others."""

    taken: int
    refused: list[RowFault]


@dataclass(frozen=True, slots=True)
class _Row:
    number: str
    name: str
    opt_in: bool | None
    source: str
    evidence: str


def save(*, tenant: Tenant, number: str, name: str) -> Contact:
    """Keeps a person's name; `number` as numbers.normalise() gives it."""
    contact, _made = Contact.objects.update_or_create(tenant=tenant, number=number, defaults={"name": name})
    return contact


def consents(tenant_id: int, contacts: Sequence[Contact]) -> dict[str, OptIn]:
    """What is on record of these people's consent, by their numbers."""
    rows = OptIn.objects.filter(tenant_id=tenant_id, number__in=[contact.number for contact in contacts])
    return {row.number: row for row in rows}


# --- files ------------------------------------------------------------------------------------------------


def import_file(raw: bytes, *, tenant: Tenant, now: datetime) -> Imported:
    """Takes in a CSV file in UTF-8 with a header of COLUMNS, of which only `number` must be there.

    `opt_in` is yes or no; yes needs a `source`, and no is an opt-out. Nobody is opted in again who opted out. A bad row
    is refused for itself. Raises BadFile.
    """
    rows: list[_Row] = []
    refused: list[RowFault] = []
    for place, fields in _lines(raw):
        row = _read(fields, place)
        rows.append(row) if isinstance(row, _Row) else refused.append(row)
    for start in range(0, len(rows), AT_ONCE):
        _take_in(rows[start : start + AT_ONCE], tenant, now)
    return Imported(len(rows), refused)


def export_lines(tenant: Tenant) -> Iterator[str]:
    """The lines of a CSV file with all people of a tenant, in the order of their numbers."""
    yield _line(COLUMNS)
    last = ""
    while page := list(_after(tenant, last)[:SPREADSHEET]):
        known = consents(tenant.pk, page)
        for contact in page:
            yield _line(_exported(contact, known.get(contact.number)))
        last = page[-1].number


def _after(tenant: Tenant, number: str) -> QuerySet[Contact]:
    return Contact.objects.filter(tenant=tenant, number__gt=number).order_by("number")


def _exported(contact: Contact, consent: OptIn | None) -> tuple[str, ...]:
    if consent is None:
        return contact.number, _harmless(contact.name), "", "", ""
    agreed = "no" if consent.revoked_at else "yes"
    return (
        contact.number,
        _harmless(contact.name),
        agreed,
        _harmless(consent.source),
        _harmless(consent.evidence),
    )


def _harmless(text: str) -> str:
    """A name that a spreadsheet does not take for a formula (OWASP, CSV injection)."""
    return f"'{text}" if text.startswith(FORMULA) else text


def _line(values: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue()


def _lines(raw: bytes) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a file with their places. Raises BadFile."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _bad(_("The file is not UTF-8.")) from None
    if "\x00" in text:
        raise _bad(_("The file has characters that cannot be stored."))
    separator = ";" if ";" in text.partition("\n")[0] else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, restval="")
    _check_header([name.strip().lower() for name in reader.fieldnames or ()])
    try:
        for place, fields in enumerate(reader, start=1):
            if place > MOST_ROWS:
                raise _bad(_("At most %(most)s rows at once.") % {"most": MOST_ROWS})
            yield place, {str(name).strip().lower(): str(value).strip() for name, value in fields.items()}
    except csv.Error as error:
        raise _bad(_("The file is not CSV: %(reason)s") % {"reason": error}) from None


def _check_header(names: Sequence[str]) -> None:
    if "number" not in names or not set(names) <= set(COLUMNS) or len(set(names)) < len(names):
        raise _bad(_("The first line must name the columns: %(names)s.") % {"names": ", ".join(COLUMNS)})


def _bad(sentence: str) -> BadFile:
    return BadFile(sentence, fields={"body": [sentence]})


def _read(fields: dict[str, str], place: int) -> _Row | RowFault:
    if "none" in fields:  # where csv puts what has no column
        return RowFault(place, "number", _("The row has more values than columns."))
    opt_in = fields.get("opt_in", "").lower()
    if opt_in not in ANSWERS:
        return RowFault(place, "opt_in", _("Must be yes, no or empty."))
    for name, most in LIMITS.items():
        if len(fields.get(name, "")) > most:
            return RowFault(place, name, _("At most %(most)s characters.") % {"most": most})
    if ANSWERS[opt_in] and not fields.get("source"):
        return RowFault(place, "source", _("Say where the opt-in came from."))
    try:
        number = numbers.normalise(fields["number"], field="number")
    except numbers.InvalidNumber as error:
        return RowFault(place, "number", error.message)
    texts = [fields.get(name, "") for name in ("name", "source", "evidence")]
    return _Row(number, texts[0], ANSWERS[opt_in], texts[1], texts[2])


# What a row leaves empty is kept. In one statement and in one order, as receiving.py introduces people.
_KEEP = """
INSERT INTO messaging_contact AS known (tenant_id, number, recipient_id, user_id, name, created_at)
SELECT %s, number, '', '', name, %s FROM unnest(%s::text[], %s::text[]) AS person (number, name) ORDER BY number
ON CONFLICT (tenant_id, number) DO UPDATE SET name = excluded.name WHERE excluded.name NOT IN ('', known.name)
"""


@transaction.atomic
def _take_in(rows: Sequence[_Row], tenant: Tenant, now: datetime) -> None:
    """In the order of numbers, so that two imports wait for each other but never deadlock. The last of twins counts."""
    people = sorted({row.number: row for row in rows}.values(), key=lambda row: row.number)
    columns = sql.transposed([(row.number, row.name) for row in people])
    sql.execute(_KEEP, [tenant.pk, now, *columns])
    for row in people:
        if row.opt_in is False:
            opt_ins.revoke(tenant=tenant, number=row.number, source=row.source or "import", now=now)
        if row.opt_in:
            opt_ins.grant_new(
                tenant=tenant, number=row.number, source=row.source, evidence=row.evidence, now=now
            )
