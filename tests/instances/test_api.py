"""Reading instances over the API."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import Project
from instances.models import InstanceStatus
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return factories.make_project()


@pytest.fixture
def raw_key(project: Project) -> str:
    return factories.make_key(project)[1]


def get(raw_key: str, **parameters: Any) -> Any:
    return Client().get("/api/instances", parameters, headers={"apikey": raw_key})


def names(answer: Any) -> list[str]:
    return [instance["name"] for instance in answer.json()["instances"]]


def test_shows_how_an_instance_is(project: Project, raw_key: str) -> None:
    factories.make_instance(
        project.tenant,
        name="loja",
        number="+5511999990000",
        status=InstanceStatus.CLOSED,
        status_changed_at=factories.NOW,
    )
    assert get(raw_key).json()["instances"] == [
        {
            "name": "loja",
            "status": "closed",
            "since": "2026-11-29T12:00:00.000000Z",
            "paused": False,
            "number": "+5511999990000",
        }
    ]


def test_leaves_out_what_was_removed_and_what_is_not_theirs(project: Project, raw_key: str) -> None:
    factories.make_instance(project.tenant, name="loja")
    factories.make_instance(project.tenant, name="antiga", status=InstanceStatus.REMOVED)
    factories.make_instance(name="deles")
    assert names(get(raw_key)) == ["loja"]


def test_pages_by_name(project: Project, raw_key: str) -> None:
    for name in ("c", "a", "b"):
        factories.make_instance(project.tenant, name=name)
    first = get(raw_key, limit=2)
    second = get(raw_key, limit=2, cursor=first.json()["next_cursor"])
    assert (names(first), names(second)) == (["a", "b"], ["c"])
    assert second.json()["next_cursor"] is None


def test_needs_no_secret_of_the_instance(
    project: Project, raw_key: str, django_assert_max_num_queries: Any
) -> None:
    for _number in range(5):
        factories.make_instance(project.tenant)
    with django_assert_max_num_queries(3) as statements:
        get(raw_key)
    assert not any("hook_token" in query["sql"] for query in statements.captured_queries)
