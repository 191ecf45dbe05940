"""Counts that outlive processes: whoever does something in batches adds here, and /metrics shows the sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pilot import sql
from pilot.models import Tally

LONGEST = 40  # characters of a label

# Sorted, so that two who add at once cannot deadlock.
_ADD = """
INSERT INTO pilot_tally (name, labels, value)
SELECT %s::text, string_to_array(added.labels, chr(31)), added.value
FROM unnest(%s::text[], %s::float8[]) AS added (labels, value) ORDER BY 2
ON CONFLICT (name, labels) DO UPDATE SET value = pilot_tally.value + excluded.value
"""


def add(name: str, counts: Mapping[tuple[str, ...], float]) -> None:
    """Adds to the tally `name`, by label values, which are cut to 40 characters. Nothing is written for zeros."""
    wanted = {
        chr(31).join(label[:LONGEST] for label in labels): value for labels, value in counts.items() if value
    }
    if not wanted:
        return
    sql.execute(_ADD, [name, list(wanted), [float(value) for value in wanted.values()]])


def read() -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Every tally: name, label values, sum. A few hundred at most."""
    for name, labels, value in Tally.objects.order_by("name", "labels").values_list(
        "name", "labels", "value"
    ):
        yield name, tuple(labels), value
