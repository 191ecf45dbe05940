"""An instance whose webhooks are silent is noticed, because its receipts come by asking only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from instances import vitals
from instances.models import Instance, Outage, Vitals
from pilot.models import Alert
from tests.factories import NOW, make_instance
from webhooks import listening
from webhooks.models import InboundCall

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def deaf(**fields: Any) -> Instance:
    """Three receipts came by asking, the first ten minutes ago, and no call since."""
    instance = make_instance()
    values = {"unheard": 3, "unheard_since": NOW - 10 * MINUTE}
    Vitals.objects.create(instance=instance, **values | fields)
    return instance


def called(instance: Instance, *, ago: timedelta) -> None:
    call = InboundCall.objects.create(instance=instance, event="messages.update", body=b"{}")
    InboundCall.objects.filter(pk=call.pk).update(received_at=NOW - ago)


def test_suspects_one_that_sends_and_reports_nothing() -> None:
    instance = deaf()
    called(instance, ago=timedelta(hours=1))

    assert listening.listen(now=NOW) == {"silent": 1}

    instance.refresh_from_db()
    outage = Outage.objects.get()
    assert (instance.status, outage.kind, outage.reason) == ("degraded", "not_delivering", "webhooks_silent")
    assert Alert.objects.get().kind == "instance_not_delivering"


def test_a_call_that_waits_to_be_applied_is_heard() -> None:
    called(deaf(), ago=MINUTE)

    assert listening.listen(now=NOW) == {}


@pytest.mark.parametrize(
    "fields", [{"unheard": 2}, {"unheard_since": NOW - 4 * MINUTE}, {"unheard": 0, "unheard_since": None}]
)
def test_gives_no_false_alarm(fields: dict[str, Any]) -> None:
    deaf(**fields)

    assert listening.listen(now=NOW) == {}


def test_one_that_never_sent_is_not_suspected() -> None:
    make_instance()

    assert listening.listen(now=NOW) == {}


def test_restarts_nobody_when_nobody_at_all_was_heard() -> None:
    instances = [deaf(), deaf()]

    assert listening.listen(now=NOW) == {"nobody_heard": 2}

    assert {Instance.objects.get(pk=each.pk).status for each in instances} == {"open"}


def test_restarts_those_that_are_silent_while_others_are_heard() -> None:
    deaf(), deaf()
    called(make_instance(), ago=MINUTE)

    assert listening.listen(now=NOW) == {"silent": 2}


def test_counts_what_only_asking_brought_until_a_call_comes() -> None:
    instance = make_instance()
    for minute in (1, 2):
        vitals.asked({instance.pk: 2}, at=NOW + minute * MINUTE)
    known = Vitals.objects.get(instance=instance)
    assert (known.unheard, known.unheard_since) == (4, NOW + MINUTE)

    vitals.heard({instance.pk: NOW + 3 * MINUTE}, acknowledged={})

    known.refresh_from_db()
    assert (known.unheard, known.unheard_since, known.acknowledged_at) == (0, None, NOW + 2 * MINUTE)
