"""Magic numbers: what a TEST key brings about with each, through the API, a dispatcher and the receipts due."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.db import connections
from django.utils import timezone

from accounts.models import Environment
from instances import accounts
from instances.models import Instance, InstanceStatus
from instances.providers.http import AsyncHttp
from instances.providers.simulator import SCENARIOS
from messaging import opt_ins, pulse, receiving, reconciling
from messaging.dispatching import Dispatcher
from messaging.models import Message
from tests import factories, members
from tests.messaging.api.conftest import Api, World
from tests.messaging.sends import timeline
from tests.webs import running_web

DELIVERED, READ, OUTAGE = "+12015550101", "+12015550102", "+12015550106"
TIMELINES = {
    "delivered": ["queued", "sending", "submitted", "sent", "delivered"],
    "read": ["queued", "sending", "submitted", "sent", "delivered", "read"],
    "not_on_whatsapp": ["queued", "sending", "failed"],
    "window_closed": ["queued", "sending", "failed"],
    "lost_answer": ["queued", "sending", "unconfirmed", "delivered"],
    "outage": ["queued", "sending", "queued", "sending", "submitted", "sent", "delivered"],
    "late_receipt": ["queued", "sending", "submitted", "delivered"],
    "expired": ["queued", "failed"],
    "opted_out": ["queued", "sending", "failed"],
    "webhook_failures": ["queued", "sending", "submitted", "sent", "delivered"],
}
# Of the seconds that the documentation names, and some for the rounds of the loops.
WITHIN = {"lost_answer": 12, "outage": 42, "late_receipt": 24, "expired": 8}


class Compressed:
    """A dispatcher, and the rounds that time alone starts, by a clock that jumps from second to second.

    It starts with the first run: by then everything was accepted, however busy the machine is.
    """

    def __init__(self) -> None:
        self.now: datetime | None = None
        self.dispatcher = Dispatcher(in_flight=10, clock=self._clock)
        self.dispatcher.start()

    def _clock(self) -> datetime:
        return self.now or timezone.now()

    def run(self, *, seconds: int) -> None:
        for _second in range(seconds):
            self.now = self._clock() + timedelta(seconds=1)
            pulse.promote(now=self.now)
            self.dispatcher.wake(*Instance.objects.values_list("pk", flat=True))
            assert self.dispatcher.idle(timeout=20)
            receiving.apply_parked(now=self.now)
            reconciling.resolve_unconfirmed(now=self.now)


@pytest.fixture
def compressed(transactional_db: None) -> Iterator[Compressed]:
    accounts.forget()
    compressed = Compressed()
    yield compressed
    assert compressed.dispatcher.stop(timeout=10)
    connections.close_all()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    async def exchange(*_args: Any) -> None:
        pytest.fail("a request left")

    monkeypatch.setattr(AsyncHttp, "_exchange", exchange)


@pytest.fixture
def test_api(world: World) -> Api:
    _key, raw = factories.make_key(world.project, environment=Environment.TEST)
    return Api(raw)


def sent_to(api: Api, number: str, **fields: Any) -> Message:
    answer = api.post("/api/messages", {"to": number, "text": "Oi"} | fields)
    assert answer.status_code == 202, answer.content
    return Message.objects.get(pk=answer.json()["id"])


@pytest.mark.usefixtures("no_network")
def test_every_number_comes_to_its_end_in_time(compressed: Compressed, test_api: Api) -> None:
    messages = {scenario.name: sent_to(test_api, number) for number, scenario in SCENARIOS.items()}
    ended: dict[str, int] = {}

    for second in range(1, max(WITHIN.values()) + 1):
        compressed.run(seconds=1)
        for scenario in SCENARIOS.values():
            messages[scenario.name].refresh_from_db()
            if messages[scenario.name].status == scenario.ends:
                ended.setdefault(scenario.name, second)

    assert {name: timeline(message) for name, message in messages.items()} == TIMELINES
    assert {name for name, second in ended.items() if second > WITHIN.get(name, 6)} == set()
    for scenario in SCENARIOS.values():
        message = messages[scenario.name]
        assert (message.status, message.failure_code) == (scenario.ends, scenario.failure)


@pytest.mark.usefixtures("no_network")
def test_a_receipt_is_news_at_its_own_time(compressed: Compressed, test_api: Api) -> None:
    message = sent_to(test_api, "+12015550107")

    compressed.run(seconds=18)
    message.refresh_from_db()
    early = message.status
    compressed.run(seconds=4)
    message.refresh_from_db()

    assert (early, message.status) == ("submitted", "delivered")
    assert message.delivered_at - message.submitted_at == timedelta(seconds=20)


def test_needs_no_instance_and_no_opt_in(db: None) -> None:
    _key, raw = factories.make_key(environment=Environment.TEST)

    message = sent_to(Api(raw), DELIVERED)

    assert (message.instance.name, message.instance.provider) == ("simulator", "simulator")
    assert (message.instance.status, message.environment) == ("open", "test")


def test_makes_one_simulator_for_a_tenant_and_another_when_it_was_removed(test_api: Api) -> None:
    first, second = sent_to(test_api, DELIVERED), sent_to(test_api, READ)
    Instance.objects.filter(pk=first.instance_id).update(status=InstanceStatus.REMOVED)
    third = sent_to(test_api, READ)

    assert first.instance_id == second.instance_id != third.instance_id


@pytest.mark.parametrize("own", [False, True], ids=["", "beside an instance of that name"])
def test_requests_at_once_make_one_simulator(own: bool, transactional_db: None) -> None:
    project = factories.make_project()
    if own:
        factories.make_instance(project.tenant, name="simulator")
    _key, raw = factories.make_key(project, environment=Environment.TEST)
    together = threading.Barrier(4)

    def ask(_number: int) -> int:
        together.wait(10)
        try:
            return sent_to(Api(raw), DELIVERED).instance_id
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        used = set(pool.map(ask, range(4)))

    assert used == set(Instance.objects.filter(provider="simulator").values_list("pk", flat=True))
    assert len(used) == 1


def test_the_doors_of_instances_know_what_a_simulator_cannot(world: World, test_api: Api) -> None:
    sent_to(test_api, DELIVERED)
    actions = ("pause", "resume", "restart", "pair", "logout")

    answers = {
        action: test_api.post(f"/api/instances/simulator/{action}", {}).status_code for action in actions
    }
    page = members.member(world.project.tenant).get("/instances/simulator")
    removed = test_api.call("DELETE", "/api/instances/simulator")

    assert answers == {"pause": 200, "resume": 200, "restart": 200, "pair": 502, "logout": 502}
    assert page.status_code == 200
    assert removed.status_code == 204


def test_says_why_what_is_to_expire_waits(test_api: Api) -> None:
    message = sent_to(test_api, "+12015550108")

    answer = test_api.get(f"/api/messages/{message.pk}/why").json()

    assert answer["why"] == "Está agendada para mais tarde."


def test_leaves_an_instance_of_that_name_alone(world: World, test_api: Api) -> None:
    own = factories.make_instance(world.project.tenant, name="simulator")

    message = sent_to(test_api, DELIVERED)

    assert message.instance_id != own.pk
    assert message.instance.name.startswith("simulator-")


def test_sends_from_the_simulator_whatever_instance_is_named(world: World, test_api: Api) -> None:
    message = sent_to(test_api, DELIVERED, instance=world.instance.name)
    unknown = test_api.post("/api/messages", {"to": DELIVERED, "text": "Oi", "instance": "nobody"})

    assert message.instance.provider == "simulator"
    assert unknown.json()["error"]["code"] == "unknown_instance"


def test_refuses_a_magic_number_to_a_live_key(world: World) -> None:
    answer = world.api.post("/api/messages", {"to": DELIVERED, "text": "Oi"})

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "magic_number"
    assert list(answer.json()["error"]["fields"]) == ["to"]
    assert not Instance.objects.filter(provider="simulator").exists()


def test_refuses_the_simulator_to_a_live_key(world: World, test_api: Api) -> None:
    sent_to(test_api, DELIVERED)

    body = {"to": "+5511999990000", "text": "Oi", "instance": "simulator"}
    answer = world.api.post("/api/messages", body)

    assert answer.json()["error"]["code"] == "unknown_instance"
    assert not Message.objects.filter(to="+5511999990000").exists()


@pytest.mark.usefixtures("no_network")
def test_any_other_number_is_simulated_where_a_test_key_names_the_simulator(
    compressed: Compressed, test_api: Api
) -> None:
    sent_to(test_api, DELIVERED)
    message = sent_to(test_api, "+5511999990000", instance="simulator")

    compressed.run(seconds=4)

    message.refresh_from_db()
    assert (message.status, message.instance.provider) == ("delivered", "simulator")


def test_an_opt_out_on_record_counts(world: World, test_api: Api) -> None:
    opt_ins.revoke(tenant=world.project.tenant, number=READ, source="test", now=timezone.now())

    answer = test_api.post("/api/messages", {"to": READ, "text": "Oi"})

    assert answer.json()["error"]["code"] == "opted_out"


def test_a_live_key_sees_nothing_of_it(world: World, test_api: Api) -> None:
    message = sent_to(test_api, DELIVERED)

    assert world.api.get(f"/api/messages/{message.pk}").status_code == 404
    assert world.api.get("/api/messages").json()["messages"] == []
    assert test_api.get(f"/api/messages/{message.pk}").status_code == 200


def test_the_short_way_takes_magic_numbers_too(transactional_db: None) -> None:
    project = factories.make_project()
    _key, test = factories.make_key(project, environment=Environment.TEST)
    _key, live = factories.make_key(project)
    with running_web(test) as web:
        taken = web.post("/api/messages", json={"to": READ, "text": "Oi"})
        refused = web.post("/api/messages", json={"to": READ, "text": "Oi"}, headers={"apikey": live})

    assert (taken.status_code, taken.json()["instance"]) == (202, "simulator")
    assert _code(refused) == "magic_number"


def _code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def test_the_documentation_has_the_table() -> None:
    page = (Path(settings.BASE_DIR) / "docs" / "sandbox.md").read_text()

    rows = [line for line in page.splitlines() if line.startswith("| `+")]

    assert rows == [
        f"| `{number}` | `{each.ends}`{f', `{each.failure}`' if each.failure else ''} | {each.sentence} |"
        for number, each in SCENARIOS.items()
    ]
