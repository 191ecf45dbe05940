"""What happens when: the messages and the faults of a run, all drawn from its seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

TENANTS = 3
PROJECTS = 9  # three for each tenant
INSTANCES = 30  # ten for each tenant, shared by its projects
NUMBERS = 400
ABSENT = 12  # of the numbers, the last so many are not on WhatsApp
EVERY_INSTANCE = -1
KEPT_CLEAR = 0.05  # of the time, at both ends, without a fault
LULL = 0.2  # seconds at least between two outages of one engine

TEMPLATE = "aviso"  # each project has one of each category, aviso_otp and so on
CATEGORIES: Mapping[str, int] = {"otp": 3, "utility": 4, "marketing": 2, "session": 1}
BURST = 40  # messages
BURST_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One POST of a client, `at` seconds after the start. Those with the same `number` have the same key and body.

    `within` is a deadline of the message's own, in seconds from the moment it is first asked for.
    """

    number: int
    at: float
    project: int
    instance: int
    to: str
    category: str
    shape: str  # text, buttons, template
    urgent: bool
    refuse_if_late: bool
    within: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong `at` seconds after the start and is over `seconds` later."""

    at: float
    kind: str
    seconds: float = 0.0
    process: str = ""
    instance: int = EVERY_INSTANCE
    detail: Mapping[str, Any] = field(default_factory=dict)

    def describe(self) -> str:
        """For the journal: what, to whom, how."""
        where = "" if self.instance == EVERY_INSTANCE else f"instance {self.instance}"
        how = " ".join(f"{name}={value}" for name, value in self.detail.items())
        lasting = f"for {self.seconds:.1f} s" if self.seconds else ""
        return " ".join(part for part in (self.kind, self.process, where, how, lasting) if part)


@dataclass(frozen=True, slots=True)
class Plan:
    """Requests and faults, each in the order of their times. `seconds`: for how long there are some."""

    seed: int
    seconds: float
    requests: Sequence[Request]
    faults: Sequence[Fault]


def plan(*, seed: int, messages: int, faults: int, seconds: float, steps: Mapping[str, str]) -> Plan:
    """The whole run. `steps` are the named steps at which a process may die, each with the kind of process."""
    dice = random.Random(seed)
    requests = sorted(_requests(dice, messages, seconds), key=lambda request: request.at)
    return Plan(seed, seconds, requests, _faults(dice, faults, seconds, steps))


def deadlines(seconds: float) -> dict[str, int]:
    """How long messages of each category may wait, in seconds: short enough that many meet their deadline."""
    longest = min(max(seconds / 3, 30), 150)
    shares = {"otp": 0.25, "utility": 0.6, "marketing": 0.8, "session": 1.0}
    return {category: round(longest * share) for category, share in shares.items()}


@cache
def numbers() -> Sequence[str]:
    """Whom messages go to: Brazilian mobiles of area codes that keep and that drop the ninth digit."""
    areas = ("11", "21", "31", "47", "85")
    return tuple(f"+55{areas[index % len(areas)]}9{80_000_000 + index:08d}" for index in range(NUMBERS))


# --- messages ---------------------------------------------------------------------------------------------


def _requests(dice: random.Random, messages: int, seconds: float) -> list[Request]:
    made: list[Request] = []
    while len(made) < messages:
        if dice.random() < 0.2 / BURST:  # about one message in six comes in a burst to one instance
            count = min(BURST, messages - len(made))
            at, instance = dice.uniform(0, seconds), dice.randrange(INSTANCES)
            made += [
                _request(dice, len(made) + n, at + dice.uniform(0, BURST_SECONDS), instance)
                for n in range(count)
            ]
        else:
            made.append(_request(dice, len(made), dice.uniform(0, seconds), dice.randrange(INSTANCES)))
    return [*made, *_repetitions(dice, made, seconds)]


def _request(dice: random.Random, number: int, at: float, instance: int) -> Request:
    category = _weighted(dice, CATEGORIES)
    return Request(
        number=number,
        at=at,
        project=_project_beside(dice, instance),
        instance=instance,
        to=dice.choice(numbers()),
        category=category,
        # A conversation's category cannot be asked for with own text: it comes with a template.
        shape="template" if category == "session" else dice.choice(("text",) * 8 + ("buttons", "template")),
        urgent=dice.random() < (0.6 if category == "otp" else 0.1),
        refuse_if_late=dice.random() < 0.02,
        within=dice.uniform(1, 8) if dice.random() < 0.05 else None,
    )


def _project_beside(dice: random.Random, instance: int) -> int:
    """One of the three projects of the instance's tenant."""
    tenant = instance * TENANTS // INSTANCES
    return tenant * PROJECTS // TENANTS + dice.randrange(PROJECTS // TENANTS)


def _repetitions(dice: random.Random, requests: Sequence[Request], seconds: float) -> list[Request]:
    """Some clients ask twice at the same moment, some again later, all under the same key."""
    again = [replace(each, at=dice.uniform(each.at, seconds)) for each in requests if dice.random() < 0.03]
    twice = [each for each in requests if dice.random() < 0.02]
    return [*again, *twice]


def _weighted(dice: random.Random, weights: Mapping[str, int]) -> str:
    return dice.choices(list(weights), weights=list(weights.values()))[0]


# --- faults -----------------------------------------------------------------------------------------------

KILLED = ("web", "worker1", "worker2", "beat", "consume", "sandbox")
WORKERS = ("worker1", "worker2")
# The named failures of the sandbox; False and True: whether the message goes out all the same, where both happen.
SHAPES: Sequence[tuple[str, bool | None]] = (
    ("connection_closed_400", None),
    ("connection_closed_500", None),
    ("type_error_400", None),
    ("on_whatsapp_500", None),
    ("timed_out_400", False),
    ("timed_out_400", True),
    ("prisma_400", None),
    ("not_on_whatsapp", None),
    ("object_object_400", None),
    ("unauthorized_401", None),
    ("forbidden_403", None),
    ("instance_404", None),
    ("license_503", None),
    ("bad_gateway_502", False),
    ("bad_gateway_502", True),
    ("gateway_timeout_504", False),
    ("gateway_timeout_504", True),
    ("internal_500", False),
    ("internal_500", True),
    ("too_many_429", None),
    ("empty_201", None),
)

# How often each kind of fault is dealt. The deck is shuffled and dealt whole before it is shuffled again, so that a
# long run sees every kind, and a short one a fair sample.
DECK: Mapping[str, int] = {
    "kill": 16,
    "die": 22,
    "redis_stopped": 3,
    "redis_killed": 2,
    "redis_frozen": 2,
    "redis_flushed": 4,
    "postgres_crashed": 4,
    "latency": 5,
    "answer_lost": 5,
    "reset_before": 3,
    "hang": 4,
    "error": 21,
    "dead_socket": 3,
    "typing_fails": 1,
    "stay_pending": 1,
    "error_receipt": 2,
    "skip_server_ack": 1,
    "webhooks_before_answer": 3,
    "webhooks_lost": 3,
    "webhooks_doubled": 3,
    "webhooks_late": 3,
    "webhooks_reordered": 3,
    "webhook_config_wiped": 1,
    "connecting_storm": 1,
    "reconnected": 3,
    "logged_out": 2,
}
# For how long, in seconds.
LASTING: Mapping[str, tuple[float, float]] = {
    "redis_stopped": (1, 6),
    "redis_killed": (0.3, 3),
    "redis_frozen": (1, 4),
    "latency": (2, 6),
    "answer_lost": (1, 5),
    "reset_before": (1, 5),
    "hang": (1, 4),
    "error": (2, 8),
    "dead_socket": (1, 4),
    "typing_fails": (2, 6),
    "stay_pending": (2, 6),
    "error_receipt": (2, 6),
    "skip_server_ack": (2, 6),
    "webhooks_before_answer": (2, 6),
    "webhooks_lost": (1, 4),
    "webhooks_doubled": (2, 6),
    "webhooks_late": (2, 6),
    "webhooks_reordered": (2, 6),
    "webhook_config_wiped": (0, 0),
    "connecting_storm": (1, 4),
    "reconnected": (0, 0),
    "logged_out": (1, 5),
}
# What may strike all instances at once; with a probability below 1, so that some messages get through.
WIDE = frozenset(
    kind for kind in LASTING if kind.startswith("webhooks_") or kind in ("latency", "answer_lost", "hang")
)
DETAILS: Mapping[str, Mapping[str, Callable[[random.Random], Any]]] = {
    "latency": {"seconds": lambda dice: dice.uniform(0.2, 7), "probability": lambda dice: 0.5},
    "answer_lost": {"probability": lambda dice: dice.choice((0.2, 0.5))},
    "reset_before": {"probability": lambda dice: 0.5},
    "hang": {"accepted": lambda dice: dice.random() < 0.5, "probability": lambda dice: 0.3},
    "webhooks_lost": {"event": lambda dice: dice.choice(("send.message", "messages.*"))},
    "webhooks_late": {"seconds": lambda dice: dice.uniform(0.5, 8)},
    "webhooks_reordered": {"window": lambda dice: dice.uniform(0.5, 3)},
    "connecting_storm": {"seconds": lambda dice: dice.uniform(1, 4)},
}
ENGINES: Mapping[str, str] = {
    "redis_stopped": "redis",
    "redis_killed": "redis",
    "redis_frozen": "redis",
    "redis_flushed": "redis",
    "postgres_crashed": "postgres",
}


def _faults(dice: random.Random, count: int, seconds: float, steps: Mapping[str, str]) -> list[Fault]:
    times = sorted(dice.uniform(KEPT_CLEAR * seconds, (1 - KEPT_CLEAR) * seconds) for _ in range(count))
    hands = _Hands(
        kinds=_dealt(dice, [kind for kind, copies in DECK.items() for _ in range(copies)]),
        shapes=_dealt(dice, SHAPES),
        steps=_dealt(dice, sorted(steps.items())),
    )
    return _without_overlaps([_draw(dice, at, hands) for at in times])


@dataclass(frozen=True, slots=True)
class _Hands:
    """Endless decks, from each of which the next card is taken."""

    kinds: Iterator[str]
    shapes: Iterator[tuple[str, bool | None]]
    steps: Iterator[tuple[str, str]]


def _dealt(dice: random.Random, cards: Sequence[T]) -> Iterator[T]:
    while True:
        yield from dice.sample(cards, len(cards))


def _draw(dice: random.Random, at: float, hands: _Hands) -> Fault:
    kind = next(hands.kinds)
    if kind == "kill":
        return Fault(at=at, kind=kind, process=dice.choice(KILLED))
    if kind == "die":
        return _death_at_step(dice, at, *next(hands.steps))
    if kind in ENGINES:
        return Fault(at=at, kind=kind, seconds=dice.uniform(*LASTING.get(kind, (0, 0))))
    if kind == "error":
        return _error(dice, at, *next(hands.shapes))
    return Fault(
        at=at,
        kind=kind,
        seconds=dice.uniform(*LASTING[kind]),
        instance=_struck(dice, kind),
        detail={name: make(dice) for name, make in DETAILS.get(kind, {}).items()},
    )


def _death_at_step(dice: random.Random, at: float, step: str, process: str) -> Fault:
    name = dice.choice(WORKERS) if process == "worker" else process
    return Fault(at=at, kind="die", process=name, detail={"step": step, "after": dice.randint(1, 6)})


def _error(dice: random.Random, at: float, shape: str, accepted: bool | None) -> Fault:
    return Fault(
        at=at,
        kind="error",
        seconds=dice.uniform(*LASTING["error"]),
        instance=dice.randrange(INSTANCES),
        detail={"shape": shape, "accepted": accepted, "times": dice.randint(1, 4), "retry_after": 1},
    )


def _struck(dice: random.Random, kind: str) -> int:
    """One instance, or all where that does not stop every lane for long."""
    return EVERY_INSTANCE if kind in WIDE and dice.random() < 0.5 else dice.randrange(INSTANCES)


def _without_overlaps(faults: Sequence[Fault]) -> list[Fault]:
    """Ends each outage of an engine shortly before the next one of the same engine."""
    kept: list[Fault] = []
    next_at: dict[str, float] = {}
    for fault in reversed(faults):
        if engine := ENGINES.get(fault.kind):
            room = next_at.get(engine, float("inf")) - fault.at - LULL
            fault = replace(fault, seconds=max(min(fault.seconds, room), 0.0))
            next_at[engine] = fault.at
        kept.append(fault)
    return kept[::-1]
