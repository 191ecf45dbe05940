"""One leader among several, and another one when it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from pilot.leading import Leadership
from tests.product.running import database_url

KEY = 0x7E57

pytestmark = pytest.mark.django_db


@pytest.fixture
def pair(settings: Any) -> Iterator[tuple[Leadership, Leadership]]:
    settings.DATABASE_URL = database_url()
    first, second = Leadership(KEY), Leadership(KEY)
    yield first, second
    first.release(), second.release()


def test_only_one_leads(pair: tuple[Leadership, Leadership]) -> None:
    first, second = pair

    assert [first.hold(), second.hold(), first.hold(), second.hold()] == [True, False, True, False]


def test_the_next_one_leads_when_the_first_lets_go(pair: tuple[Leadership, Leadership]) -> None:
    first, second = pair
    first.hold()

    first.release()

    assert second.hold()


def test_a_leader_whose_session_ended_hears_of_it(pair: tuple[Leadership, Leadership]) -> None:
    first, second = pair
    first.hold()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s", [KEY]
        )

    with pytest.raises(psycopg.Error):
        first.hold()
    assert second.hold()
    assert not first.hold()
