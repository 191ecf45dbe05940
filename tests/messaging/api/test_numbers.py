"""Checking numbers over the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from accounts.models import Environment
from messaging import reachability
from messaging.models import Contact, FailureCode, Status
from tests import factories
from tests.messaging.api.conftest import Api, World
from tests.messaging.api.test_messages import error

ANA, BIA = "+5511999990000", "+5547988887777"


def check(api: Api, *numbers: str) -> list[dict[str, Any]]:
    answer = api.post("/api/numbers/check", {"numbers": list(numbers)})
    assert answer.status_code == 200
    return list(answer.json()["numbers"])


def on_whatsapp(api: Api, *numbers: str) -> list[bool | None]:
    return [number["on_whatsapp"] for number in check(api, *numbers)]


@pytest.mark.parametrize(
    ("given", "number", "country", "kind"),
    [
        ("(11) 999-0000", None, None, None),
        ("(47) 8888-7777", BIA, "BR", "mobile"),
        ("11 3333-4444", "+551133334444", "BR", "fixed"),
        ("+1 212 555 2368", "+12125552368", "US", "mobile_or_fixed"),
        ("+800 1234 5678", "+80012345678", None, "other"),
        ("nobody", None, None, None),
    ],
)
def test_says_what_the_numbering_plan_says(
    world: World, given: str, number: str | None, country: str | None, kind: str | None
) -> None:
    assert check(world.api, given) == [
        {
            "given": given,
            "valid": number is not None,
            "number": number,
            "country": country,
            "type": kind,
            "on_whatsapp": None,
        }
    ]


def test_answers_each_in_its_place(world: World) -> None:
    assert [each["given"] for each in check(world.api, BIA, "x", ANA, BIA)] == [BIA, "x", ANA, BIA]


@pytest.mark.parametrize("status", reachability.ARRIVED)
def test_knows_who_got_a_message(world: World, status: Status) -> None:
    factories.make_message(world.project, world.instance, to=ANA, status=status)
    assert on_whatsapp(world.api, ANA, BIA) == [True, None]


def test_knows_who_was_not_there(world: World) -> None:
    _fail(world, FailureCode.NOT_ON_WHATSAPP)
    assert on_whatsapp(world.api, ANA) == [False]


def test_learns_nothing_from_another_failure_or_from_what_waits(world: World) -> None:
    _fail(world, FailureCode.EXPIRED)
    factories.make_message(world.project, world.instance, to=ANA)
    assert on_whatsapp(world.api, ANA) == [None]


@pytest.mark.parametrize("later", [True, False])
def test_believes_the_newest(world: World, later: bool) -> None:
    after = timedelta(days=1 if later else -1)
    _fail(world, FailureCode.NOT_ON_WHATSAPP)
    factories.make_message(
        world.project, world.instance, to=ANA, status=Status.READ, created_at=factories.NOW + after
    )
    assert on_whatsapp(world.api, ANA) == [later]


def test_knows_whom_whatsapp_named_an_id_for_however_the_number_is_written(world: World) -> None:
    Contact.objects.create(tenant=world.project.tenant, number="+554788887777", recipient_id="12@lid")
    Contact.objects.create(tenant=world.project.tenant, number=ANA)
    assert on_whatsapp(world.api, BIA, ANA) == [True, None]


def test_knows_nothing_from_another_tenant_or_environment(world: World) -> None:
    factories.make_message(world.project, world.instance, to=ANA, status=Status.READ)
    _key, test = factories.make_key(world.project, environment=Environment.TEST)
    assert on_whatsapp(world.stranger, ANA) == on_whatsapp(Api(test), ANA) == [None]


def test_asks_the_database_no_more_for_many_than_for_one(
    world: World, django_assert_max_num_queries: Any
) -> None:
    many = [f"+5511999990{place:03}" for place in range(100)]
    with django_assert_max_num_queries(4):
        assert len(check(world.api, *many)) == 100


@pytest.mark.parametrize("numbers", [[], [ANA] * 101, ANA, [None], [""], ["x" * 41]])
def test_names_the_field_that_is_wrong(world: World, numbers: Any) -> None:
    answer = world.api.post("/api/numbers/check", {"numbers": numbers})
    assert (answer.status_code, set(error(answer)["fields"])) == (400, {"numbers"})


def _fail(world: World, code: FailureCode) -> None:
    factories.make_message(
        world.project,
        world.instance,
        to=ANA,
        status=Status.FAILED,
        failure_code=code,
        failed_at=factories.NOW,
    )
