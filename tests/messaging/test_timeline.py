"""A message's events in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.utils import translation

from instances.history import ICONS
from instances.history import TITLES as INSTANCE_TITLES
from instances.models import InstanceStatus
from messaging.models import MessageEvent, Status
from messaging.templatetags.texts import whatsapp
from messaging.timeline import TITLES, Step, elapsed, steps
from pilot.templatetags.display import phone
from tests.factories import NOW


@pytest.fixture(autouse=True)
def _in_english() -> Iterator[None]:
    with translation.override("en"):
        yield


def _told(*events: MessageEvent) -> list[Step]:
    return list(steps(events, since=NOW))


def _event(kind: str, *, seconds: float = 0, applied: bool = True, **detail: Any) -> MessageEvent:
    return MessageEvent(kind=kind, at=NOW + timedelta(seconds=seconds), applied=applied, detail=detail)


def test_has_a_title_for_every_status() -> None:
    assert set(TITLES) == {*Status.values, "held"}


def test_shows_an_event_of_tomorrow_as_it_is() -> None:
    assert _told(_event("teleported"))[0].title == "teleported"


def test_has_an_icon_for_every_event() -> None:
    icons = set(re.findall(r'<symbol id="(\w+)"', (settings.BASE_DIR / "static" / "icons.svg").read_text()))

    assert {*TITLES, *InstanceStatus.values, *ICONS.values(), *(set(INSTANCE_TITLES) - set(ICONS))} <= icons


def test_tells_the_first_queueing_from_later_ones() -> None:
    first, again = _told(_event("queued"), _event("queued", seconds=1))

    assert first.title == "Accepted into the queue"
    assert again.title == "Put back in the queue"


@pytest.mark.parametrize(
    ("event", "note"),
    [
        (_event("sending", attempt=2), "Attempt 2."),
        (_event("failed", gate="deadline", code="expired"), "Its deadline passed before it could be sent."),
        (
            _event("failed", code="rejected", reason="Bad Request"),
            "The provider refused the message. The provider says: Bad Request",
        ),
        (
            _event("queued", why="retry", code="throttled", next_attempt_at="2026-11-29T12:00:30+00:00"),
            "The provider asked for a pause. Next attempt at 12:00:30.",
        ),
        (
            _event("sent", why="look_up", finding="found"),
            "The provider was asked about it. It has the message.",
        ),
        (_event("sent", code="a code of tomorrow"), ""),
        (_event("held", gate="instance", reason="paused"), "The instance is paused."),
        (_event("held", gate="instance", reason="closed"), "The instance is disconnected."),
        (
            _event("held", gate="daily_cap", reason="100 of 100", until="2026-11-30T03:00:00+00:00"),
            "The instance has sent all that it may send today. Until 03:00:00.",
        ),
        (_event("sent", applied=False, code="expired"), "This news came late and changed nothing."),
    ],
)
def test_says_what_an_event_carries(event: MessageEvent, note: str) -> None:
    assert _told(event)[0].note == note


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (10, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599.9, "1 h 0 min"),
        (7260, "2 h 1 min"),
    ],
)
def test_measures_time_in_the_units_that_matter(seconds: float, words: str) -> None:
    assert elapsed(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("*a* _b_ ~c~ ```d```", "<strong>a</strong> <em>b</em> <s>c</s> <code>d</code>"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("snake_case_name", "snake_case_name"),
        ("*a _b_*", "<strong>a <em>b</em></strong>"),
        ("*<b>*", "<strong>&lt;b&gt;</strong>"),
        ("<script>alert('x')</script>", "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;"),
        ("https://a.example/?a=1&b=_2_", "https://a.example/?a=1&amp;b=<em>2</em>"),
    ],
)
def test_draws_the_markup_of_whatsapp(text: str, html: str) -> None:
    assert whatsapp(text) == html


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        ("+5511987654321", "+55 11 98765-4321"),
        ("+14155552671", "+1 415-555-2671"),
        ("", ""),
        ("a group", "a group"),
    ],
)
def test_spaces_numbers_as_their_country_does(number: str, shown: str) -> None:
    assert phone(number) == shown
