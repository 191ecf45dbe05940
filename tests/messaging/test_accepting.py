"""Accepting a message."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoCaptureOnCommitCallbacks

from accounts.models import ApiKey, Environment
from billing import metering
from instances import breaking
from instances.models import DefaultInstance
from messaging import accepting, forecasting, opt_ins
from messaging.accepting import Accepted, Idempotency, Order, submit
from messaging.composing import Submission
from messaging.models import IdempotencyKey, Message, MessageEvent, Status, TemplateStatus
from pilot import queues, sql
from pilot.errors import PilotError
from pilot.redis import client
from tests import factories

pytestmark = pytest.mark.django_db

OWN = {"to": "+5511999990000", "content": {"text": "Olá"}}
TEMPLATE = {"to": "+5511999990000", "template": "pedido_enviado", "variables": {"nome": "Ana"}}


@pytest.fixture
def key(db: None) -> ApiKey:
    return make_sender()


def make_sender() -> ApiKey:
    return factories.make_sender()[0]


def accept(key: ApiKey, now: datetime, fields: dict[str, Any] = OWN, **more: Any) -> Accepted:
    idempotency = more.pop("idempotency", None)
    return submit(Order(key, Submission(**fields | more), idempotency), now=now)


def refusal(key: ApiKey, now: datetime, fields: dict[str, Any] = OWN, **more: Any) -> PilotError:
    """The error that a submission is refused with; nothing was written."""
    before = written()
    with pytest.raises(PilotError) as refused:
        accept(key, now, fields, **more)
    assert written() == before
    return refused.value


def written() -> tuple[int, ...]:
    usage = connection.cursor()
    usage.execute("SELECT coalesce(sum(accepted), 0) FROM billing_usage")
    return (
        Message.objects.count(),
        MessageEvent.objects.count(),
        IdempotencyKey.objects.count(),
        int(usage.fetchone()[0]),
    )


# --- what is written down ---------------------------------------------------------------------------------


def test_writes_message_event_and_usage(key: ApiKey, now: datetime) -> None:
    message = accept(key, now, TEMPLATE, urgent=True, metadata={"order": "1"}).message

    row = Message.objects.get(pk=message.pk)
    assert (row.tenant, row.project, row.environment) == (key.tenant, key.project, key.environment)
    assert (row.status, row.attempts, row.next_attempt_at) == (Status.QUEUED, 0, None)
    assert (row.to, row.category, row.urgent, row.metadata) == (
        "+5511999990000",
        "utility",
        True,
        {"order": "1"},
    )
    assert row.content == {"text": "Olá Ana, seu pedido saiu."}
    assert row.variables == {"nome": "Ana"}
    assert not row.body_override
    assert row.template_version == key.project.templates.get().current_version
    event = MessageEvent.objects.get()
    assert (event.message_id, event.tenant_id, event.kind, event.at) == (row.pk, key.tenant_id, "queued", now)
    assert metering.accepted(tenant=key.tenant, environment=key.environment, now=now) == 1


def test_takes_a_text_as_it_is(key: ApiKey, now: datetime) -> None:
    content = {"text": "Olá {{nome}} 👩‍👩‍👧 ‏שלום " + "x" * 4000, "footer": "Loja"}
    row = Message.objects.get(pk=accept(key, now, OWN, content=content).message.pk)
    assert row.content == content
    assert row.body_override
    assert row.template_version is None


def test_wakes_the_instance_once_all_is_committed(
    key: ApiKey, now: datetime, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    client().flushdb()
    with django_capture_on_commit_callbacks(execute=True):
        instance_id = accept(key, now).message.instance_id
        assert tokens(instance_id) == 0
    assert tokens(instance_id) == 1


def tokens(instance_id: int) -> int:
    """How many wake-ups wait, in the instance's own queue or a shared one."""
    empty = queues.without_token([instance_id])
    return int(queues.waits(instance_id) if empty is None else not empty)


# --- deadline ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("category", "span"),
    [
        ("otp", timedelta(minutes=2)),
        ("utility", timedelta(hours=1)),
        ("marketing", timedelta(hours=4)),
        ("session", timedelta(hours=24)),
    ],
)
def test_gives_each_category_its_time(key: ApiKey, now: datetime, category: str, span: timedelta) -> None:
    assert accept(key, now, OWN, category=category).message.deliver_until == now + span


def test_takes_the_category_of_the_template(key: ApiKey, now: datetime) -> None:
    factories.make_template(key.project, name="codigo", text="Código {{n}}", category="otp")
    message = accept(key, now, TEMPLATE, template="codigo", variables={"n": 123}).message
    assert (message.category, message.deliver_until) == ("otp", now + timedelta(minutes=2))


def test_lets_a_request_shorten_the_time_but_not_lengthen_it(key: ApiKey, now: datetime) -> None:
    sooner, later = now + timedelta(minutes=5), now + timedelta(days=5)
    assert accept(key, now, OWN, deliver_until=sooner).message.deliver_until == sooner
    assert accept(key, now, OWN, deliver_until=later).message.deliver_until == now + timedelta(hours=1)


@pytest.mark.parametrize("ago", [timedelta(0), timedelta(seconds=1), timedelta(days=9000)])
def test_refuses_a_deadline_that_has_passed(key: ApiKey, now: datetime, ago: timedelta) -> None:
    error = refusal(key, now, OWN, deliver_until=now - ago)
    assert (error.code, set(error.fields)) == ("deadline_passed", {"deliver_until"})


# --- later ------------------------------------------------------------------------------------------------


def test_counts_the_time_from_when_it_is_scheduled(key: ApiKey, now: datetime) -> None:
    then = now + timedelta(days=2)
    accepted = accept(key, now, OWN, scheduled_at=then)

    row = Message.objects.get(pk=accepted.message.pk)
    assert (row.scheduled_at, row.next_attempt_at) == (then, then)
    assert row.deliver_until == then + timedelta(hours=1)
    assert accepted.forecast is not None
    assert accepted.forecast.expected_at == then
    assert accept(key, now, OWN, scheduled_at=then, deliver_until=then + timedelta(minutes=1))


def test_wakes_nobody_for_what_is_scheduled(
    key: ApiKey, now: datetime, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    client().flushdb()
    with django_capture_on_commit_callbacks(execute=True):
        instance_id = accept(key, now, scheduled_at=now + timedelta(hours=1)).message.instance_id
    assert tokens(instance_id) == 0


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(seconds=-1), timedelta(days=31)])
def test_refuses_a_time_that_is_past_or_too_far(key: ApiKey, now: datetime, ahead: timedelta) -> None:
    error = refusal(key, now, OWN, scheduled_at=now + ahead)
    assert (error.code, set(error.fields)) == ("bad_schedule", {"scheduled_at"})


def test_refuses_a_deadline_before_the_time_it_is_scheduled_for(key: ApiKey, now: datetime) -> None:
    soon, later = now + timedelta(hours=1), now + timedelta(hours=2)
    error = refusal(key, now, OWN, scheduled_at=later, deliver_until=soon)
    assert (error.code, set(error.fields)) == ("deadline_passed", {"deliver_until"})


# --- what is refused --------------------------------------------------------------------------------------


def test_refuses_a_template_that_is_not_there(key: ApiKey, now: datetime) -> None:
    error = refusal(key, now, TEMPLATE, template="outro")
    assert (error.code, set(error.fields)) == ("unknown_template", {"template"})


def test_refuses_a_template_of_another_project(key: ApiKey, now: datetime) -> None:
    factories.make_template(factories.make_project(key.tenant), name="deles")
    assert refusal(key, now, TEMPLATE, template="deles").code == "unknown_template"


def test_refuses_a_template_that_was_archived(key: ApiKey, now: datetime) -> None:
    key.project.templates.update(status=TemplateStatus.ARCHIVED)
    assert refusal(key, now, TEMPLATE).code == "unknown_template"


@pytest.mark.parametrize(
    ("fields", "more", "code"),
    [
        (OWN, {"to": "12"}, "invalid_number"),
        (OWN, {"to": "+5511988887777"}, "opt_in_required"),
        (OWN, {"to": "+5511988887777", "category": "otp"}, "opt_in_required"),
        (OWN, {"content": {"text": ""}}, "invalid_content"),
        (OWN, {"instance": "nowhere"}, "unknown_instance"),
        (TEMPLATE, {"variables": {}}, "invalid_variables"),
    ],
)
def test_refuses(key: ApiKey, now: datetime, fields: dict[str, Any], more: dict[str, Any], code: str) -> None:
    assert refusal(key, now, fields, **more).code == code


def test_skips_the_opt_in_with_the_scope_only(key: ApiKey, now: datetime) -> None:
    unasked = {"to": "+5511988887777", "skip_opt_in_validation": True}
    accept(key, now, OWN, **unasked)

    key.scopes = ["messages:write"]
    assert refusal(key, now, OWN, **unasked).code == "forbidden"


def test_refuses_who_opted_out(key: ApiKey, now: datetime) -> None:
    opt_ins.revoke(tenant=key.tenant, number="+5511999990000", source="reply", now=now)
    assert refusal(key, now, OWN, skip_opt_in_validation=True).code == "opted_out"


# --- asking again -----------------------------------------------------------------------------------------


def again(key: ApiKey, *, name: str = "k-1", body: Any = OWN) -> Idempotency:
    return Idempotency.of(name, project_id=key.project_id, body=body)


def test_gives_the_first_message_again(key: ApiKey, now: datetime) -> None:
    first = accept(key, now, idempotency=again(key))
    second = accept(key, now + timedelta(days=400), idempotency=again(key))

    assert (first.replayed, second.replayed) == (False, True)
    assert second.message == first.message
    assert written() == (1, 1, 1, 1)


def test_does_not_mind_the_order_of_fields(key: ApiKey) -> None:
    assert again(key, body={"a": 1, "b": [2]}) == again(key, body={"b": [2], "a": 1})
    assert again(key, body={"a": 1, "b": [2, 3]}) != again(key, body={"a": 1, "b": [3, 2]})


def test_gives_the_first_message_again_although_it_would_now_be_refused(key: ApiKey, now: datetime) -> None:
    first = accept(key, now, idempotency=again(key))
    opt_ins.revoke(tenant=key.tenant, number="+5511999990000", source="reply", now=now)
    assert accept(key, now, idempotency=again(key))[:2] == (first.message, True)


def test_refuses_the_key_with_another_body(key: ApiKey, now: datetime) -> None:
    accept(key, now, idempotency=again(key))
    error = refusal(key, now, idempotency=again(key, body={"other": 1}))
    assert (error.code, error.status) == ("idempotency_key_reused", 422)


def test_keeps_the_key_free_when_the_request_was_refused(key: ApiKey, now: datetime) -> None:
    refusal(key, now, OWN, to="12", idempotency=again(key))
    assert not accept(key, now, idempotency=again(key)).replayed


def test_keeps_keys_of_tenants_and_environments_apart(key: ApiKey, now: datetime) -> None:
    test_key, _raw = factories.make_key(key.project, environment=Environment.TEST)
    for sender in (key, test_key, make_sender()):
        assert not accept(sender, now, idempotency=again(sender)).replayed
    assert Message.objects.count() == 3


def test_refuses_a_key_that_another_project_used(key: ApiKey, now: datetime) -> None:
    project = factories.make_project(key.tenant)
    DefaultInstance.objects.create(project=project, instance=factories.make_instance(key.tenant))
    colleague, _raw = factories.make_key(project)
    accept(key, now, idempotency=again(key))
    assert refusal(colleague, now, idempotency=again(colleague)).code == "idempotency_key_reused"


def test_writes_nothing_when_the_last_write_fails(key: ApiKey, now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE billing_usage ADD CONSTRAINT the_meter_broke CHECK (accepted < 0) NOT VALID"
        )

    with pytest.raises(IntegrityError), transaction.atomic():
        accept(key, now, idempotency=again(key))
    assert written() == (0, 0, 0, 0)


def test_yields_to_the_same_request_that_was_committed_meanwhile(
    key: ApiKey, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    compose_all = accepting.compose_all
    rivals: list[Accepted] = []

    def overtaken(*given: Any, **options: Any) -> Any:
        monkeypatch.undo()
        rivals.append(accept(key, now, idempotency=again(key)))
        return compose_all(*given, **options)

    monkeypatch.setattr(accepting, "compose_all", overtaken)
    assert accept(key, now, idempotency=again(key))[:2] == (rivals[0].message, True)
    assert written() == (1, 1, 1, 1)


@pytest.mark.django_db(transaction=True)
def test_makes_one_message_of_requests_that_race(now: datetime) -> None:
    key = make_sender()
    clients = 8
    start = Barrier(clients)

    def ask(_client: int) -> str:
        try:
            start.wait()
            return str(accept(key, now, idempotency=again(key)).replayed)
        except accepting.StillRunning:
            return "running"
        finally:
            connections.close_all()

    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(ask, range(clients)))

    assert answers.count("False") == 1
    assert set(answers) <= {"False", "True", "running"}
    assert written() == (1, 1, 1, 1)


@pytest.mark.django_db(transaction=True)
def test_says_at_once_that_the_same_request_is_still_running(now: datetime) -> None:
    key = make_sender()

    def ask() -> Accepted:
        try:
            return accept(key, now, idempotency=again(key))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            accept(key, now, idempotency=again(key))
            with pytest.raises(accepting.StillRunning):
                pool.submit(ask).result(timeout=20)
            transaction.set_rollback(True)
        assert not pool.submit(ask).result(timeout=20).replayed


# --- many at once -----------------------------------------------------------------------------------------


def order(key: ApiKey, fields: dict[str, Any] = OWN, **more: Any) -> Order:
    idempotency = more.pop("idempotency", None)
    return Order(key, Submission(**fields | more), idempotency)


def accept_all(orders: list[Order], now: datetime) -> list[str]:
    """What became of each order, in one word."""
    answers = accepting.accept(accepting.prepare(orders, now=now))
    return [_word(answer) for answer in answers]


def _word(answer: Accepted | PilotError) -> str:
    if isinstance(answer, PilotError):
        return answer.code
    return "replayed" if answer.replayed else "accepted"


def test_answers_each_of_many_in_their_order(key: ApiKey, now: datetime) -> None:
    stranger = make_sender()
    factories.make_key(key.project)
    accept(key, now, idempotency=again(key, name="known"))

    words = accept_all(
        [
            order(key),
            order(key, to="12"),
            order(key, idempotency=again(key, name="known")),
            order(key, TEMPLATE),
            order(stranger, TEMPLATE, variables={}),
            order(stranger, to="+5511988887777"),
            order(key, idempotency=again(key, name="known", body={"other": 1})),
            order(key, idempotency=again(key, name="new")),
            order(stranger, idempotency=again(stranger, name="new")),
            order(key, idempotency=again(key, name="new")),
            order(key, idempotency=again(key, name="new", body={"other": 1})),
        ],
        now,
    )

    assert words == [
        "accepted",
        "invalid_number",
        "replayed",
        "accepted",
        "invalid_variables",
        "opt_in_required",
        "idempotency_key_reused",
        "accepted",
        "accepted",
        "replayed",
        "idempotency_key_reused",
    ]
    assert written() == (5, 5, 3, 5)
    assert metering.accepted(tenant=stranger.tenant, environment=stranger.environment, now=now) == 1


def test_needs_as_many_statements_for_a_thousand_as_for_one(
    key: ApiKey, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def statements(orders: list[Order]) -> int:
        count = 0

        def counted(*given: Any) -> Any:
            nonlocal count
            count += 1
            return fetch(*given)

        forecasting.forget()  # what is remembered for a second
        breaking.forget()
        fetch = sql.fetch
        with monkeypatch.context() as patch, CaptureQueriesContext(connection) as others:
            patch.setattr(sql, "fetch", counted)
            assert set(accept_all(orders, now)) == {"accepted"}
        return count + len(others)

    def orders(count: int, name: str) -> list[Order]:
        idempotency = [again(key, name=f"{name}-{number}") for number in range(count)]
        return [order(key, TEMPLATE, idempotency=each) for each in idempotency]

    assert statements(orders(1000, "many")) == statements(orders(1, "one")) <= 7
    assert Message.objects.count() == 1001


def test_tells_each_of_many_how_many_of_them_go_first(key: ApiKey, now: datetime) -> None:
    accept(key, now)
    forecasting.forget()
    answers = accepting.accept(accepting.prepare([order(key) for _ in range(3)], now=now))
    positions = [
        answer.forecast.position for answer in answers if isinstance(answer, Accepted) and answer.forecast
    ]
    assert positions == [2, 3, 4]


@pytest.mark.django_db(transaction=True)
def test_does_not_block_batches_that_count_the_same_projects(now: datetime) -> None:
    """Batches that name the same projects in opposite orders, at the same time: no deadlock, and every one counted."""
    keys = [make_sender() for _ in range(6)]
    start = Barrier(6)

    def ask(number: int) -> set[str]:
        try:
            start.wait()
            mine = keys if number % 2 else keys[::-1]
            return {word for _ in range(10) for word in accept_all([order(key) for key in mine], now)}
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        assert all(words == {"accepted"} for words in pool.map(ask, range(6)))
    assert written() == (360, 360, 0, 360)
