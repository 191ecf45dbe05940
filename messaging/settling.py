"""Settle: what came of a call, written down in one transaction over many messages, and their lanes freed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from instances import breaking
from instances import status as connections
from instances.models import InstanceStatus
from instances.providers.base import Outcome, ProviderError, Receipt
from messaging import status, windows
from messaging.claiming import Claim, refused
from messaging.expecting import expect
from messaging.gates import Refusal
from messaging.models import FailureCode, Status
from messaging.retry import ATTEMPTS, next_attempt
from messaging.status import Move
from pilot import sql

log = structlog.get_logger(__name__)

FIRST_LOOK_UP = timedelta(seconds=5)
AWAY = (OperationalError, InterfaceError)  # the database, not what we wanted of it


@dataclass(frozen=True, slots=True)
class Settlement:
    """What came of a claim: a Receipt, a ProviderError, or a gate that closed before the call."""

    claim: Claim
    result: Receipt | ProviderError | Refusal


def settle(settlements: Sequence[Settlement], *, now: datetime) -> None:
    """Records what came of claims, frees their lanes, and lets breakers and instances learn from it.

    One settlement that cannot be written never keeps another from it. Raises OperationalError or InterfaceError when
    the database is away; settling again then does no harm, because a lease ends only once.
    """
    try:
        _settle(settlements, now)
    except AWAY:
        raise
    except Exception:
        log.exception("settle.batch_failed", messages=len(settlements))
        for settlement in settlements:
            _settle_alone(settlement, now)
    _learn(settlements, now)


def _settle(settlements: Sequence[Settlement], now: datetime) -> None:
    with transaction.atomic():
        released = status.settle([verdict(settlement, now=now) for settlement in settlements]).released
        ended = [each for each in settlements if each.claim.lease_token in released]
        vacate(
            [each.claim.instance_id for each in ended],
            unsent=[each.claim.instance_id for each in ended if _surely_unsent(each)],
        )
        expect(
            [(each.claim.instance_id, each.result) for each in ended if isinstance(each.result, Receipt)],
            now=now,
        )


def _settle_alone(settlement: Settlement, now: datetime) -> None:
    try:
        _settle([settlement], now)
    except AWAY:
        raise
    except Exception:
        log.exception("settle.failed", message_id=settlement.claim.message.id)
        _settle([Settlement(settlement.claim, _surely_writable(settlement.result))], now)


def _surely_writable(result: Receipt | ProviderError | Refusal) -> Receipt | ProviderError:
    """What is left of a result that could not be written: taken over under an id of somebody else, or unknown."""
    if isinstance(result, Receipt):
        return Receipt(provider_message_id="", recipient_id="", status=Status.SUBMITTED)
    return ProviderError("internal", type(result).__name__, outcome=Outcome.UNKNOWN)


# --- lanes, breakers, instances ---------------------------------------------------------------------------

# Lanes are locked in one order, whatever the plan of the update, so that two batches cannot deadlock.
_VACATE = """
WITH freed AS (
    SELECT lane.instance_id, f.ended, f.unsent
    FROM unnest(%s::bigint[], %s::int[], %s::int[]) AS f (instance_id, ended, unsent)
    JOIN instances_lane lane USING (instance_id) ORDER BY lane.instance_id FOR UPDATE OF lane
)
UPDATE instances_lane lane SET in_flight = greatest(lane.in_flight - freed.ended, 0),
       sent_count = greatest(lane.sent_count - freed.unsent, 0)
FROM freed WHERE lane.instance_id = freed.instance_id
"""


def vacate(instance_ids: Iterable[int], *, unsent: Iterable[int] = ()) -> None:
    """Takes ended sends off their lanes, one for each time an id is given; `unsent` ones do not count for the day.

    To be called once for each lease that ended, in the transaction that ends it.
    """
    ended, refunds = Counter(instance_ids), Counter(unsent)
    if not ended:
        return
    keys = sorted(ended)
    sql.execute(_VACATE, [keys, [ended[key] for key in keys], [refunds[key] for key in keys]])


def _surely_unsent(settlement: Settlement) -> bool:
    result = settlement.result
    return isinstance(result, Refusal) or (
        isinstance(result, ProviderError) and result.outcome != Outcome.UNKNOWN
    )


def _learn(settlements: Sequence[Settlement], now: datetime) -> None:
    """After the fact, and apart from it: a failure here must not make anybody settle again."""
    try:
        windows.note_failures([_failure(each, now) for each in settlements if _refused_by_provider(each)])
        _note_endpoints(settlements, now)
        _degrade_instances(settlements, now)
    except DatabaseError:
        log.exception("settle.nothing_learned")


def _refused_by_provider(settlement: Settlement) -> bool:
    result = settlement.result
    rejected = isinstance(result, ProviderError) and result.outcome == Outcome.REJECTED
    return rejected and windows.applies_to(settlement.claim.provider)


def _failure(settlement: Settlement, now: datetime) -> windows.Failure:
    claim = settlement.claim
    return windows.Failure(claim.instance_id, claim.message.to, getattr(settlement.result, "code", ""), now)


def _note_endpoints(settlements: Sequence[Settlement], now: datetime) -> None:
    answered, failures = set(), []
    for settlement in settlements:
        claim, result = settlement.claim, settlement.result
        if claim.server_id is None:
            continue
        if isinstance(result, Receipt) or (
            isinstance(result, ProviderError) and breaking.is_answer(result.code)
        ):
            answered.add(claim.server_id)
        elif isinstance(result, ProviderError) and breaking.is_failure(result.code):
            failures.append(breaking.Failure(claim.server_id, claim.instance_id, result.code))
        elif claim.probe:
            breaking.give_back_probe(claim.server_id)  # nobody asked the endpoint, or it proves nothing
    breaking.note(answered=answered, failures=failures, now=now)


def _degrade_instances(settlements: Sequence[Settlement], now: datetime) -> None:
    """Closes the gate of instances that turned out to be down; their health check opens it again.

    An instance that changed since the attempt began is left alone: that news is newer.
    """
    down = {
        settlement.claim.instance_id: (settlement.claim.claimed_at, settlement.result.code)
        for settlement in settlements
        if isinstance(settlement.result, ProviderError) and settlement.result.outcome == Outcome.INSTANCE_DOWN
    }
    for instance_id, (claimed_at, code) in sorted(down.items()):
        connections.move(
            instance_id=instance_id,
            to=InstanceStatus.DEGRADED,
            at=now,
            reason=code,
            only_from=[InstanceStatus.OPEN],
            unless_changed_after=claimed_at,
        )


# --- the table of DESIGN §4 -------------------------------------------------------------------------------


def verdict(settlement: Settlement, *, now: datetime) -> Move:
    """What a claim's result means for its message. Pure."""
    claim, result = settlement.claim, settlement.result
    return replace(_news(claim, result, now), lease_token=claim.lease_token, attempted_at=claim.claimed_at)


def _news(claim: Claim, result: Receipt | ProviderError | Refusal, now: datetime) -> Move:
    if isinstance(result, Receipt):
        return Move(
            message_id=claim.message.id,
            to=result.status,
            at=now,
            provider_message_id=result.provider_message_id,
            recipient_id=result.recipient_id,
        )
    if isinstance(result, Refusal):
        return refused(claim.message.id, result, now=now)
    return _NEWS[result.outcome](claim, result, now)


def _rejected(claim: Claim, error: ProviderError, now: datetime) -> Move:
    code = error.code if error.code in FailureCode.values else FailureCode.REJECTED
    return _failed(claim, error, code, now)


def _failed(claim: Claim, error: ProviderError, code: str, now: datetime) -> Move:
    return Move(
        message_id=claim.message.id,
        to=Status.FAILED,
        at=now,
        only_from=status.WAITING,  # a receipt that overtook the answer proves more than the answer
        failure_code=code,
        failure_detail=error.detail,
        detail={"code": code, "reason": error.detail, "attempt": claim.attempt},
    )


def _retry(claim: Claim, error: ProviderError, now: datetime) -> Move:
    at = next_attempt(
        attempts=claim.attempt, now=now, deliver_until=claim.deliver_until, retry_after=error.retry_after
    )
    if at is None:
        exhausted = claim.attempt >= ATTEMPTS
        code = FailureCode.ATTEMPTS_EXHAUSTED if exhausted else FailureCode.EXPIRED
        return _failed(claim, error, code, now)
    detail = {"why": "retry", "code": error.code, "reason": error.detail, "attempt": claim.attempt}
    return Move(
        message_id=claim.message.id,
        to=Status.QUEUED,
        at=now,
        next_attempt_at=at,
        detail=detail | {"next_attempt_at": at.isoformat()},
    )


def _instance_down(claim: Claim, error: ProviderError, now: datetime) -> Move:
    """Back to the queue without costing an attempt: the instance is degraded, and its gate holds until it opens."""
    return Move(
        message_id=claim.message.id,
        to=Status.QUEUED,
        at=now,
        refund_attempt=True,
        detail={"why": "instance_down", "code": error.code, "reason": error.detail},
    )


def _unknown(claim: Claim, error: ProviderError, now: datetime) -> Move:
    return Move(
        message_id=claim.message.id,
        to=Status.UNCONFIRMED,
        at=now,
        next_attempt_at=now + FIRST_LOOK_UP,
        detail={"code": error.code, "reason": error.detail, "attempt": claim.attempt},
    )


_NEWS = {
    Outcome.REJECTED: _rejected,
    Outcome.RETRY: _retry,
    Outcome.INSTANCE_DOWN: _instance_down,
    Outcome.UNKNOWN: _unknown,
}
