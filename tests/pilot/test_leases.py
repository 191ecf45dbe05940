"""One holder at a time, and not for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from pilot.leases import lease
from pilot.models import Lease

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
LAPSED = timedelta(seconds=-1)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def test_gives_a_lease_to_one_at_a_time() -> None:
    with (
        lease("a", lasts=MINUTE) as first,
        lease("a", lasts=MINUTE) as second,
        lease("b", lasts=MINUTE) as other,
    ):
        assert [bool(first), bool(second), bool(other)] == [True, False, True]


def test_gives_it_to_the_next_one_when_the_first_is_done() -> None:
    with lease("a", lasts=MINUTE):
        pass

    with lease("a", lasts=MINUTE) as ours:
        assert ours


def test_whoever_did_not_get_it_does_not_end_it() -> None:
    with lease("a", lasts=MINUTE):
        with lease("a", lasts=MINUTE):
            pass
        with lease("a", lasts=MINUTE) as ours:
            assert not ours


def test_ends_it_when_the_work_fails() -> None:
    with pytest.raises(ZeroDivisionError), lease("a", lasts=MINUTE):
        raise ZeroDivisionError

    assert not Lease.objects.exists()


def test_does_not_wait_for_a_holder_that_died() -> None:
    with lease("a", lasts=LAPSED), lease("a", lasts=MINUTE) as ours:
        assert ours


def test_a_holder_that_was_too_slow_does_not_end_the_lease_of_the_next() -> None:
    slow = lease("a", lasts=LAPSED)
    slow.__enter__()

    with lease("a", lasts=MINUTE):
        slow.__exit__(None, None, None)
        with lease("a", lasts=MINUTE) as ours:
            assert not ours


def test_keeps_a_lease_while_the_work_goes_on() -> None:
    with lease("a", lasts=LAPSED) as ours:
        Lease.objects.update(until=LONG_AGO)

        assert ours.keep()

        assert Lease.objects.get(pk="a").until > LONG_AGO


def test_tells_a_holder_that_was_too_slow_to_stop() -> None:
    with lease("a", lasts=LAPSED) as slow, lease("a", lasts=MINUTE) as next_:
        assert next_
        assert not slow.keep()
        assert not slow


def test_does_not_ask_the_database_after_every_piece_of_work(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    with lease("a", lasts=MINUTE) as ours, django_assert_num_queries(0):
        assert ours.keep()


def test_whoever_did_not_get_it_cannot_keep_it() -> None:
    with lease("a", lasts=MINUTE), lease("a", lasts=LAPSED) as second:
        assert not second.keep()
