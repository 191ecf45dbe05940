"""Applies stored calls in batches, each exactly once: its changes and its `applied_at` are one transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog
from django.db import OperationalError, transaction

from instances import connecting, notices, vitals
from instances.models import Instance, InstanceStatus
from instances.notices import Told
from instances.providers import PROVIDERS, bounds, provider_for
from instances.providers.base import (
    ConnectionEvent,
    Event,
    InboundMessage,
    Notice,
    Pairing,
    StatusEvent,
    Unreadable,
)
from messaging import receiving
from messaging.acknowledging import PROOF
from messaging.receiving import Arrival
from webhooks.models import InboundCall

log = structlog.get_logger(__name__)

BATCH = 200


# Which provider reads what an app at Meta is told of.
READERS = {"whatsapp_business_account": "meta", "instagram": "instagram"}


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A call, or the part of one that is about one instance, and what its provider says it means."""

    call: InboundCall
    instance: Instance
    events: Sequence[Event]


def apply_pending(*, now: datetime, limit: int = BATCH) -> int:
    """Applies up to `limit` stored calls, oldest first. Returns how many are done with, so 0 means: nothing waits.

    Several processes may do it at once: each takes rows that no other holds. A call that cannot be applied, or not
    all of it, keeps its `error` and fails no other; one that the database could not serve now stays for the next
    time. Raises OperationalError when the database is away: then none is half applied.
    """
    with transaction.atomic():
        calls = _take(limit)
        if not calls:
            return 0
        parsed, errors = _parse(calls)
        later = _apply_together(parsed, errors)
        done = [call for call in calls if call.pk not in later]
        _close(done, errors, now)
    _note_vitals(parsed)
    return len(done)


def oldest_is_from_before(moment: datetime) -> bool:
    """Whether the call that waits longest came before `moment`."""
    oldest = InboundCall.objects.filter(applied_at=None).order_by("id").values_list("received_at", flat=True)
    return any(received_at < moment for received_at in oldest[:1])


def _take(limit: int) -> list[InboundCall]:
    waiting = InboundCall.objects.filter(applied_at=None).order_by("id")
    return list(waiting.select_for_update(skip_locked=True)[:limit])


def _parse(calls: Sequence[InboundCall]) -> tuple[list[_Parsed], dict[int, str]]:
    """What each call means, and by call id why it means nothing."""
    callers = _callers(calls)
    parsed: list[_Parsed] = []
    errors: dict[int, str] = {}
    for call in calls:
        try:
            events, parts = _read(call, callers)
        except Exception as error:  # whatever a provider sends and a parser makes of it
            errors[call.pk] = _report(call, _reason(error))
        else:
            parsed += parts
            errors |= _unreadable(call, events)
    return parsed, errors


@dataclass(frozen=True, slots=True)
class _Callers:
    """The instances that a batch of calls may be about: those that were called for, and those of the apps."""

    instances: Mapping[int, Instance]
    of_app: Mapping[tuple[int | None, str], Sequence[Instance]]  # by app and provider


def _callers(calls: Sequence[InboundCall]) -> _Callers:
    # Without the secrets, which would be decrypted for nothing.
    rows = Instance.objects.defer("hook_token", "credentials")
    own = rows.in_bulk({call.instance_id for call in calls if call.instance_id is not None})
    of_app: dict[tuple[int | None, str], list[Instance]] = {}
    apps = {call.app_id for call in calls if call.app_id is not None}
    for instance in rows.filter(app__in=apps).exclude(status=InstanceStatus.REMOVED) if apps else ():
        of_app.setdefault((instance.app_id, instance.provider), []).append(instance)
    return _Callers(own, of_app)


def _read(call: InboundCall, callers: _Callers) -> tuple[Sequence[Event], list[_Parsed]]:
    body = json.loads(bytes(call.body))
    if call.instance_id is not None:
        instance = callers.instances[call.instance_id]
        events = provider_for(instance).parse(body)
        return events, [_Parsed(call, instance, events)]
    provider = READERS[body["object"]]
    events = PROVIDERS[provider].parse(body)
    # Never an instance of another app, whatever the call says.
    return events, _by_instance(call, events, callers.of_app.get((call.app_id, provider), ()))


def _by_instance(call: InboundCall, events: Sequence[Event], instances: Iterable[Instance]) -> list[_Parsed]:
    """The events of an app's call by whom they are about."""
    parts = [
        _Parsed(call, instance, [event for event in events if _concerns(event, instance)])
        for instance in instances
    ]
    return [part for part in parts if part.events]


def _concerns(event: Event, instance: Instance) -> bool:
    if isinstance(event, StatusEvent | InboundMessage):
        return event.account_id == instance.account_id
    if not isinstance(event, Notice):
        return False
    return instance.account_id == event.account_id or (
        not event.account_id and instance.business_id == event.business_id
    )


def _unreadable(call: InboundCall, events: Iterable[Event]) -> dict[int, str]:
    reasons = [event.reason for event in events if isinstance(event, Unreadable)]
    return {call.pk: _report(call, _short("; ".join(reasons)))} if reasons else {}


def _apply_together(parsed: Sequence[_Parsed], errors: dict[int, str]) -> set[int]:
    """Applies all at once or, when that fails, one by one, adding to `errors`. Returns the calls left for later."""
    try:
        with transaction.atomic():
            _apply(parsed)
    except Exception as error:
        log.warning("webhooks.applying.batch_failed", calls=len(parsed), reason=_reason(error))
        return {one.call.pk for one in parsed if not _apply_alone(one, errors)}
    return set()


def _apply_alone(parsed: _Parsed, errors: dict[int, str]) -> bool:
    """False when the call is to be tried again: a deadlock or a timeout says nothing about the call."""
    try:
        with transaction.atomic():
            for event in parsed.events:
                _apply_item(replace(parsed, events=[event]), errors)
    except OperationalError as error:
        log.warning("webhooks.applying.postponed", call=parsed.call.pk, reason=_reason(error))
        return False
    return True


def _apply_item(item: _Parsed, errors: dict[int, str]) -> None:
    """Applies a call of which only one event is left, or notes why it cannot be applied."""
    try:
        with transaction.atomic():
            _apply([item])
    except OperationalError:
        raise
    except Exception as error:
        errors[item.call.pk] = _report(item.call, _reason(error))


def _apply(parsed: Sequence[_Parsed]) -> None:
    arrivals = [
        Arrival(one.instance, event, one.call.received_at)
        for one in parsed
        for event in one.events
        if isinstance(event, StatusEvent | InboundMessage)
    ]
    receiving.apply(arrivals)
    _apply_connections(parsed)
    _apply_notices(parsed)


def _apply_notices(parsed: Sequence[_Parsed]) -> None:
    notices.apply(
        [
            Told(one.instance, event, one.call.received_at)
            for one in sorted(parsed, key=lambda one: (one.instance.pk, one.call.pk))
            for event in one.events
            if isinstance(event, Notice)
        ]
    )


def _apply_connections(parsed: Sequence[_Parsed]) -> None:
    """Unlike receipts, these depend on their order: an instance's are applied as they came, never after newer ones."""
    news = [
        (one, event)
        for one in sorted(parsed, key=lambda one: (one.instance.pk, one.call.pk))
        for event in one.events
        if isinstance(event, ConnectionEvent | Pairing)
    ]
    if not news:
        return
    _lock_instances({one.instance.pk for one, _event in news})
    for one, event in news:
        if not _overtaken(one.call):
            connecting.apply_connection(instance=one.instance, event=event, now=one.call.received_at)


def _lock_instances(ids: Collection[int]) -> None:
    # Another process may hold newer calls of the same instance; whoever is second sees what the first applied.
    # Sorted, so that two batches do not deadlock; not against the foreign keys of messages being accepted.
    list(Instance.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk").values("pk"))


def _overtaken(call: InboundCall) -> bool:
    newer = InboundCall.objects.filter(instance=call.instance_id, event=call.event, pk__gt=call.pk)
    return newer.filter(applied_at__isnull=False, error="").exists()


def _note_vitals(parsed: Sequence[_Parsed]) -> None:
    """Afterwards, and apart: rows that every batch writes would tie batches together."""
    newest = sorted(parsed, key=lambda one: one.call.received_at)
    called = {one.instance.pk: one.call.received_at for one in newest}
    acknowledged = {one.instance.pk: one.call.received_at for one in newest if any(map(_proves, one.events))}
    vitals.heard(called, acknowledged=acknowledged)


def _proves(event: Event) -> bool:
    return isinstance(event, StatusEvent) and event.status in PROOF


def _close(calls: Sequence[InboundCall], errors: Mapping[int, str], now: datetime) -> None:
    InboundCall.objects.filter(pk__in=[call.pk for call in calls]).update(applied_at=now, error="")
    for call in calls:
        if error := errors.get(call.pk):
            InboundCall.objects.filter(pk=call.pk).update(error=error)


def _report(call: InboundCall, reason: str) -> str:
    log.error("webhooks.applying.failed", call=call.pk, instance=call.instance_id, reason=reason)
    return reason


def _reason(error: Exception) -> str:
    return _short(f"{type(error).__name__}: {error}")


def _short(reason: str) -> str:
    return bounds.text(reason, most=bounds.DETAIL_LENGTH)
