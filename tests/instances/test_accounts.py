"""Accounts are kept for a few seconds, and not too many of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from instances import accounts
from instances.models import Instance
from tests.factories import make_instance

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    accounts.forget()
    yield
    accounts.forget()


def test_keeps_an_account_for_a_while() -> None:
    instance = make_instance()
    before = accounts.account_of(instance.pk)

    Instance.objects.update(link_preview=True)

    assert accounts.account_of(instance.pk) is before
    accounts.forget()
    assert accounts.account_of(instance.pk).link_preview


def test_does_not_keep_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MOST_KEPT", 3)
    instances = [make_instance() for _ in range(8)]

    for instance in instances:
        assert accounts.account_of(instance.pk).name == instance.provider_name
        assert len(accounts._kept) <= 3
