"""Whatever the order, number or lateness of news, a message ends in the same view and never goes backwards."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from messaging import status
from messaging.models import FailureCode, Message, MessageEvent, Status
from messaging.status import PROOF, WAITING, Move, Moved, move
from tests.factories import NOW, make_message

RANK = {reached: rank for rank, reached in enumerate(PROOF)}
RECEIPTS = (Status.SENT, Status.DELIVERED, Status.READ, Status.PLAYED)
LASTING = (Status.DELIVERED, Status.READ, Status.PLAYED)


class Life(RuleBasedStateMachine):
    """One message: claims, settlements under live and dead leases, lost answers, receipts in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.message = make_message(deliver_until=NOW + timedelta(days=1))
        self.leases: list[UUID] = []
        self.told: set[str] = set()  # every proof that was ever brought
        self.applied: list[str] = []
        self.clock = NOW

    def bring(self, to: str, *, by: Callable[[Move], Moved] = move, **fields: object) -> bool:
        self.clock += timedelta(seconds=1)
        news = Move(message_id=self.message.pk, to=to, at=self.clock, **fields)  # type: ignore[arg-type]
        return self.note(to, changed=bool(by(news).changed))

    def note(self, to: str, *, changed: bool) -> bool:
        if to in RANK:
            self.told.add(to)
        if changed:
            self.applied.append(to)
        return changed

    @property
    def row(self) -> Message:
        return Message.objects.get(pk=self.message.pk)

    @rule(at_once=st.booleans())
    def claim(self, at_once: bool) -> None:
        lease = uuid4()
        if at_once:
            started = status.start({self.message.pk: lease}, now=self.clock, lease_until=self.clock)
            claimed = self.note(Status.SENDING, changed=bool(started))
        else:
            claimed = self.bring(Status.SENDING, new_lease=lease, lease_until=self.clock)
        if claimed:
            self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(which=st.integers(0, 9), to=st.sampled_from([Status.SUBMITTED, Status.QUEUED, Status.UNCONFIRMED]))
    def settle(self, which: int, to: str) -> None:
        self.bring(
            to, by=lambda news: status.settle([news]), lease_token=self.leases[which % len(self.leases)]
        )

    @precondition(lambda self: self.leases)
    @rule(which=st.integers(0, 9))
    def refuse(self, which: int) -> None:
        self.bring(
            Status.FAILED,
            lease_token=self.leases[which % len(self.leases)],
            failure_code=FailureCode.REJECTED,
            only_from=frozenset({Status.QUEUED, Status.SENDING, Status.UNCONFIRMED}),
        )

    @rule(receipt=st.sampled_from(RECEIPTS))
    def receive(self, receipt: str) -> None:
        self.bring(receipt)

    @rule()
    def give_up(self) -> None:
        self.bring(
            Status.FAILED,
            failure_code=FailureCode.OUTCOME_UNKNOWN,
            only_from=frozenset({Status.UNCONFIRMED}),
        )

    @invariant()
    def shows_the_furthest_lasting_proof(self) -> None:
        told = [proof for proof in LASTING if proof in self.told]
        if told:
            assert self.row.status == max(told, key=RANK.__getitem__)

    @invariant()
    def never_goes_backwards(self) -> None:
        ranks = [RANK[reached] for reached in self.applied if reached in LASTING]
        assert ranks == sorted(set(ranks))

    @invariant()
    def proved_once_is_never_sent_again(self) -> None:
        proved = next((place for place, reached in enumerate(self.applied) if reached in RANK), None)
        if proved is not None:
            assert not WAITING & set(self.applied[proved:])

    @invariant()
    def keeps_each_kind_of_news(self) -> None:
        kinds = set(MessageEvent.objects.filter(message=self.message).values_list("kind", flat=True))
        assert self.told <= kinds

    @invariant()
    def a_failure_has_a_code_and_nothing_else_has(self) -> None:
        row = self.row
        assert bool(row.failure_code) == (row.status == Status.FAILED)


@pytest.mark.django_db
class TestLife(TestCase, Life.TestCase):  # type: ignore[misc]
    """Each example in a transaction of its own."""


TestLife.settings = settings(
    max_examples=60, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
