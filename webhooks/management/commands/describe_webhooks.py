"""`manage.py describe_webhooks`: the event catalogue as a page of Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand

from webhooks.catalogue import ENVELOPE, TYPES, EventType

HEAD = """\
# Webhook events

Written by `python manage.py describe_webhooks` from `webhooks/catalogue.py`; change it there. How events are delivered:
[webhooks.md](webhooks.md). The same is at `GET /api/webhooks/event-types` and in the dashboard.

## Payload

Every request carries one event: `data` has the shape that its `type` says below.
"""


class Command(BaseCommand):
    help = "Prints docs/webhook-events.md."

    def handle(self, *_args: Any, **_options: Any) -> None:
        self.stdout.write(page(), ending="")


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_fenced(ENVELOPE), *(line for each in TYPES.values() for line in _about(each))])


def _about(event: EventType) -> Iterator[str]:
    yield from (f"## {event.name}", "", event.description, "")
    yield from _fenced(event.example)
    yield from ("<details><summary>JSON Schema</summary>", "")
    yield from _fenced(event.schema)
    yield from ("</details>", "")


def _fenced(value: Any) -> Iterator[str]:
    yield from ("```json", json.dumps(value, indent=2, ensure_ascii=False), "```", "")
