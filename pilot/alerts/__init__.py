"""Alerts: what somebody must know, told once until it is over.

An alert and its deliveries are rows, written with whatever raised it and delivered afterwards (delivering.py), so
that a lost Redis, a dead worker or a deaf channel loses none and repeats none. That an alert is open but once for its
kind and subject is a unique index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

import structlog
from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from pilot import locks
from pilot.alerts.channels import channel, names
from pilot.alerts.kinds import KINDS, KindName, kind_of
from pilot.celery import wake_alerts
from pilot.models import Alert, AlertDelivery

log = structlog.get_logger(__name__)

# How often a repeated alert is written down again.
SEEN_EVERY = timedelta(minutes=1)
SUBJECT_LIMIT, VALUE_LIMIT = 200, 500


def raise_alert(
    kind: KindName,
    subject: str | int,
    *,
    tenant_id: int | None = None,
    detail: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> bool:
    """Tells those concerned, once until recover(). True when the alert is new, or it was over and is back.

    `subject` is what it is about and stays the same while the trouble lasts: an instance's id, a stream's name.
    `detail` is JSON: the values of the kind's sentence, with `name` as what people call the subject.
    To be called as often as anybody likes, also within a transaction: the alert then is part of it. Never raises,
    waits for nobody, and does no I/O but its rows.
    """
    alert = Alert(kind=kind, subject=_text(subject, SUBJECT_LIMIT), tenant_id=tenant_id)
    return _safely(partial(_raise, detail=detail or {}), alert, now or timezone.now())


def recover(
    kind: KindName, subject: str | int, *, now: datetime | None = None, silently: bool = False
) -> bool:
    """Ends an alert and says so to everybody who was told of it, once. False when none is open.

    `silently` when its end is no good news: what it was about is gone. Never raises, as raise_alert().
    """
    end = partial(_recover, silently=silently)
    return _safely(end, Alert(kind=kind, subject=_text(subject, SUBJECT_LIMIT)), now or timezone.now())


def open_subjects(kind: KindName) -> set[str]:
    """The subjects of all alerts of this kind that are open."""
    return set(Alert.objects.filter(kind=kind, recovered_at=None).values_list("subject", flat=True))


def of_tenant(tenant_id: int) -> QuerySet[Alert]:
    """The alerts that a tenant is told of, open and past."""
    told = [name for name, kind in KINDS.items() if "tenant" in kind.told.value]
    return Alert.objects.filter(tenant_id=tenant_id, kind__in=told)


def end_quiet(now: datetime) -> int:
    """Ends the alerts of trouble that nobody sees the end of, and that was not raised again for long enough."""
    count = 0
    for kind, known in KINDS.items():
        if known.quiet_after:
            quiet = Alert.objects.filter(kind=kind, recovered_at=None, seen_at__lte=now - known.quiet_after)
            subjects = list(quiet.values_list("subject", flat=True))
            count += sum(recover(cast("KindName", kind), subject, now=now) for subject in subjects)
    return count


def _safely(change: Callable[[Alert, datetime], bool], alert: Alert, now: datetime) -> bool:
    """In a savepoint of its own: what goes wrong in it is logged, and does not touch the caller's transaction."""
    try:
        with transaction.atomic():
            return _locked(alert) and change(alert, now)
    except Exception:
        log.exception("alert.failed", kind=alert.kind, subject=alert.subject)
        return False


def _locked(alert: Alert) -> bool:
    """Whether nobody else is at this very alert; whoever is has the last word.

    Waiting for them, as the unique index would, could take as long as their transaction, or deadlock with it.
    """
    what = f"{alert.kind}:{alert.subject}"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", [locks.ALERT, what])
        return bool(cursor.fetchone()[0])


def _raise(alert: Alert, now: datetime, *, detail: Mapping[str, Any]) -> bool:
    if known := _known(alert):
        if now - known.seen_at >= SEEN_EVERY:
            Alert.objects.filter(pk=known.pk).update(seen_at=now, times=F("times") + 1)
        return False
    alert.raised_at = alert.seen_at = now
    alert.detail = {name: _storable(value) for name, value in detail.items()}
    alert.save(force_insert=True)
    _tell(alert)
    log.warning("alert.raised", kind=alert.kind, subject=alert.subject, tenant_id=alert.tenant_id)
    return True


def _recover(alert: Alert, now: datetime, *, silently: bool) -> bool:
    known = _known(alert)
    if known is None:
        return False
    Alert.objects.filter(pk=known.pk).update(recovered_at=now)
    if not silently:
        _tell_of_end(known, now)
    log.info("alert.recovered", kind=alert.kind, subject=alert.subject)
    return True


def _known(alert: Alert) -> Alert | None:
    """The open one of the same kind and subject."""
    return Alert.objects.filter(kind=alert.kind, subject=alert.subject, recovered_at=None).first()


def _tell(alert: Alert) -> None:
    _wake_on_commit([name for name in names() if _tell_through(name, alert)])


def _tell_through(name: str, alert: Alert) -> bool:
    """Whether anybody is told in this channel. One that fails is logged, and the others tell all the same."""
    try:
        with transaction.atomic():
            return bool(AlertDelivery.objects.bulk_create(_deliveries(name, alert)))
    except Exception:
        log.exception("alert.channel_unusable", channel=name, alert_id=alert.pk)
        return False


def _deliveries(name: str, alert: Alert) -> list[AlertDelivery]:
    way = channel(name)
    told = way.recipients(alert) if way.audience in _told(alert) else ()
    each_once = {recipient.address: recipient for recipient in told}
    return [
        AlertDelivery(
            alert=alert,
            notice=AlertDelivery.Notice.RAISED,
            channel=name,
            recipient=address,
            language=recipient.language,
            next_attempt_at=alert.raised_at,
        )
        for address, recipient in each_once.items()
    ]


def _told(alert: Alert) -> frozenset[str]:
    told = kind_of(alert.kind).told.value
    return told if alert.tenant_id else told - {"tenant"}


def _tell_of_end(alert: Alert, now: datetime) -> None:
    """A notice for each delivery of the alert that arrived or still may."""
    told = alert.deliveries.exclude(state=AlertDelivery.State.FAILED).order_by("pk")
    notices = [
        AlertDelivery(
            alert=alert,
            notice=AlertDelivery.Notice.RECOVERED,
            channel=each.channel,
            recipient=each.recipient,
            language=each.language,
            next_attempt_at=now,
        )
        for each in told
    ]
    AlertDelivery.objects.bulk_create(notices)
    _wake_on_commit({notice.channel for notice in notices})


def _wake_on_commit(channels: Iterable[str]) -> None:
    transaction.on_commit(partial(wake_alerts, sorted(channels)), robust=True)


def _storable(value: Any) -> Any:
    """A value of a detail. What is told may come from anywhere, and must not keep the alert from being told."""
    return value if isinstance(value, bool | int | None) else _text(value, VALUE_LIMIT)


def _text(value: object, limit: int) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in str(value)[:limit])
