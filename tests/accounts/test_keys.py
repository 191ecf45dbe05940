"""API keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Barrier
from uuid import uuid4

import pytest
from django.db import connection

from accounts import keys
from accounts.models import ApiKey, KeyState, Project, Scope
from tests import factories

pytestmark = pytest.mark.django_db

SOON = timedelta(hours=1)


@pytest.fixture
def project() -> Project:
    return factories.make_project()


def works(raw: str, now: datetime) -> bool:
    try:
        keys.authenticate(raw, now=now)
    except keys.InvalidKey:
        return False
    return True


def test_issues_a_key_that_works(project: Project, now: datetime) -> None:
    key, raw = keys.issue(project=project, name="loja", environment="live", now=now)

    assert re.fullmatch(r"pilot_live_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", raw)
    assert raw.startswith(key.prefix + "_")
    found = keys.authenticate(raw, now=now)
    assert (found, found.project, found.project.tenant) == (key, project, project.tenant)
    assert set(key.scopes) == {Scope.MESSAGES_READ, Scope.MESSAGES_WRITE}


def test_keeps_no_raw_key(project: Project, now: datetime) -> None:
    _key, raw = keys.issue(project=project, name="loja", environment="live", now=now)
    secret = raw.rpartition("_")[2]
    stored = ApiKey.objects.values_list("name", "prefix", "digest").get()
    assert not any(secret in str(value) for value in stored)


def test_never_makes_the_same_key_twice(project: Project, now: datetime) -> None:
    made = {keys.issue(project=project, name="n", environment="test", now=now)[1] for _ in range(20)}
    assert len(made) == 20


@pytest.mark.parametrize(
    "change", [str.upper, lambda raw: raw[:-1], lambda raw: raw + "x", lambda raw: " " + raw]
)
def test_takes_the_whole_key_only(project: Project, now: datetime, change: Callable[[str], str]) -> None:
    _key, raw = factories.make_key(project)
    assert works(raw, now)
    assert not works(change(raw), now)


@pytest.mark.parametrize("raw", ["", "\x00", "\ud800", "é" * 500, "pilot_live_00000000_"])
def test_takes_nothing_else(project: Project, now: datetime, raw: str) -> None:
    factories.make_key(project)
    assert not works(raw, now)


def test_ends_at_its_expiry(project: Project, now: datetime) -> None:
    _key, raw = factories.make_key(project, expires_at=now + SOON)
    assert works(raw, now + SOON - timedelta(microseconds=1))
    assert not works(raw, now + SOON)


def test_ends_when_it_is_revoked(project: Project, now: datetime) -> None:
    key, raw = factories.make_key(project)
    assert keys.revoke(key, now=now)
    assert not works(raw, now)


def test_is_revoked_once(project: Project, now: datetime) -> None:
    key, _raw = factories.make_key(project)
    keys.revoke(key, now=now)
    assert not keys.revoke(key, now=now + SOON)
    key.refresh_from_db()
    assert key.revoked_at == now


def test_revokes_a_key_that_was_about_to_end(project: Project, now: datetime) -> None:
    key, raw = factories.make_key(project)
    keys.rotate(key, overlap=SOON, now=now)
    assert keys.revoke(key, now=now)
    assert not works(raw, now)


def test_rotates_with_an_overlap(project: Project, now: datetime) -> None:
    key, raw = factories.make_key(project, scopes=[Scope.MESSAGES_READ], expires_at=now + 9 * SOON)
    successor, fresh = keys.rotate(key, overlap=SOON, now=now)

    assert (successor.project, successor.scopes, successor.expires_at, successor.environment) == (
        key.project,
        key.scopes,
        key.expires_at,
        key.environment,
    )
    assert works(raw, now)
    assert works(fresh, now)
    assert not works(raw, now + SOON)
    assert works(fresh, now + SOON)
    key.refresh_from_db()
    assert key.rotated_to == successor


def test_does_not_revive_a_key_that_ended(project: Project, now: datetime) -> None:
    key, raw = factories.make_key(project)
    keys.revoke(key, now=now)
    key.refresh_from_db()
    with pytest.raises(keys.KeyEnded):
        keys.rotate(key, overlap=SOON, now=now + SOON)
    assert not works(raw, now + SOON)
    assert ApiKey.objects.count() == 1


def test_rotates_a_key_once(project: Project, now: datetime) -> None:
    key, _raw = factories.make_key(project)
    keys.rotate(key, overlap=SOON, now=now)
    with pytest.raises(keys.KeyEnded):
        keys.rotate(key, overlap=SOON, now=now)
    assert ApiKey.objects.count() == 2


def test_notes_its_use_once_a_minute(project: Project, now: datetime) -> None:
    key, raw = factories.make_key(project)

    def used_at(moment: datetime) -> datetime | None:
        keys.authenticate(raw, now=moment)
        key.refresh_from_db()
        return key.last_used_at

    assert used_at(now) == now
    assert used_at(now + timedelta(seconds=59)) == now
    assert used_at(now + timedelta(seconds=61)) == now + timedelta(seconds=61)


def test_issues_one_key_for_one_form(project: Project, now: datetime) -> None:
    once = uuid4()
    keys.issue(project=project, name="loja", environment="live", now=now, once=once)
    with pytest.raises(keys.IssuedBefore):
        keys.issue(project=project, name="loja", environment="live", now=now, once=once)
    assert ApiKey.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_issues_one_key_for_a_form_that_is_sent_four_times_at_once(project: Project, now: datetime) -> None:
    once, start = uuid4(), Barrier(4)

    def send(_number: int) -> bool:
        connection.ensure_connection()
        start.wait(timeout=10)
        try:
            keys.issue(project=project, name="loja", environment="live", now=now, once=once)
        except keys.IssuedBefore:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(4) as senders:
        assert sorted(senders.map(send, range(4))) == [False, False, False, True]
    assert ApiKey.objects.count() == 1


def _expired(key: ApiKey, now: datetime) -> None:
    ApiKey.objects.filter(pk=key.pk).update(expires_at=now)


def _rotated(key: ApiKey, now: datetime) -> None:
    keys.rotate(key, overlap=SOON, now=now)


def _revoked(key: ApiKey, now: datetime) -> None:
    keys.revoke(key, now=now)


def _revoked_late(key: ApiKey, now: datetime) -> None:
    _expired(key, now)
    keys.revoke(key, now=now + SOON)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda key, now: None, KeyState.ACTIVE),
        (_rotated, KeyState.ENDING),
        (_revoked, KeyState.REVOKED),
        (_expired, KeyState.EXPIRED),
        (_revoked_late, KeyState.EXPIRED),
    ],
)
def test_tells_the_state_of_a_key(
    project: Project, now: datetime, change: Callable[[ApiKey, datetime], None], state: KeyState
) -> None:
    key, raw = factories.make_key(project)
    change(key, now)
    key.refresh_from_db()

    assert keys.state(key, now=now) == state
    assert works(raw, now) == (state in {KeyState.ACTIVE, KeyState.ENDING})


def test_tells_that_a_rotated_key_was_revoked_in_the_end(project: Project, now: datetime) -> None:
    key, _raw = factories.make_key(project)
    keys.rotate(key, overlap=SOON, now=now)
    key.refresh_from_db()

    assert keys.ends_at(key) == now + SOON
    assert keys.state(key, now=now + SOON) == KeyState.REVOKED
