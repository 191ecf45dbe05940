"""The schedule of a chaos run: drawn from its seed, and nothing else."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

from launcher.chaos import dying, schedule
from launcher.chaos.schedule import DECK, ENGINES, INSTANCES, PROJECTS, SHAPES, TENANTS, Fault, Plan, Request

STEPS = dying.process_of_steps()


def plan(*, seed: int = 1, messages: int = 2000, faults: int = 300, seconds: float = 100) -> Plan:
    return schedule.plan(seed=seed, messages=messages, faults=faults, seconds=seconds, steps=STEPS)


def test_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    assert plan(seed=7) == plan(seed=7)
    assert plan(seed=7).requests != plan(seed=8).requests
    assert plan(seed=7).faults != plan(seed=8).faults


def test_asks_for_every_message_and_injects_every_fault() -> None:
    made = plan(messages=2000, faults=300)

    assert {request.number for request in made.requests} == set(range(2000))
    assert len(made.faults) == 300


def test_is_in_the_order_of_time_and_within_it() -> None:
    made = plan(seconds=100)

    for times in ([each.at for each in made.requests], [each.at for each in made.faults]):
        assert times == sorted(times)
        assert times[0] >= 0
    assert made.requests[-1].at <= 100 + schedule.BURST_SECONDS
    assert made.faults[-1].at <= 100


def test_repeats_some_requests_with_the_same_content() -> None:
    by_number: dict[int, list[Request]] = defaultdict(list)
    for request in plan().requests:
        by_number[request.number].append(request)

    repeated = [requests for requests in by_number.values() if len(requests) > 1]

    assert any(one.at == other.at for one, other, *_rest in repeated)
    assert any(one.at != other.at for one, other, *_rest in repeated)
    for one, *others in repeated:
        assert {(other.project, other.to, other.shape, other.within) for other in others} == {
            (one.project, one.to, one.shape, one.within)
        }


def test_sends_in_every_category_shape_and_project_from_every_instance() -> None:
    requests = plan().requests

    assert {request.category for request in requests} == set(schedule.CATEGORIES)
    assert {request.shape for request in requests} == {"text", "buttons", "template"}
    assert {request.instance for request in requests} == set(range(INSTANCES))
    assert {request.project for request in requests} == set(range(PROJECTS))
    assert {request.urgent for request in requests} == {True, False}


def test_sends_from_instances_of_the_projects_tenant_only() -> None:
    for request in plan().requests:
        assert request.instance * TENANTS // INSTANCES == request.project * TENANTS // PROJECTS


def test_a_long_run_sees_every_kind_of_fault_every_step_and_every_shape() -> None:
    faults = plan(faults=300).faults

    assert {fault.kind for fault in faults} == set(DECK)
    assert {fault.detail["step"] for fault in faults if fault.kind == "die"} == set(STEPS)
    shapes = {(fault.detail["shape"], fault.detail["accepted"]) for fault in faults if fault.kind == "error"}
    assert shapes == set(SHAPES)
    assert {fault.process for fault in faults if fault.kind == "kill"} == set(schedule.KILLED)


def test_deals_kinds_by_their_weights() -> None:
    faults = plan(faults=2 * sum(DECK.values())).faults

    assert Counter(fault.kind for fault in faults) == {kind: 2 * copies for kind, copies in DECK.items()}


def test_lets_the_right_process_die_at_a_step() -> None:
    for fault in plan().faults:
        if fault.kind == "die":
            assert fault.process.rstrip("12") == STEPS[fault.detail["step"]]


def test_outages_of_one_engine_do_not_overlap() -> None:
    faults = plan(faults=600, seconds=60).faults
    by_engine: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        if fault.kind in ENGINES:
            by_engine[ENGINES[fault.kind]].append(fault)

    assert any(fault.seconds for fault in by_engine["redis"])
    for outages in by_engine.values():
        for earlier, later in itertools.pairwise(outages):
            assert earlier.at + earlier.seconds <= later.at


def test_deadlines_are_short_and_in_the_order_of_urgency() -> None:
    for seconds in (20, 100, 500):
        limits = schedule.deadlines(seconds)
        assert limits["otp"] < limits["utility"] < limits["marketing"] < limits["session"] <= 150
        assert limits["otp"] >= 7
