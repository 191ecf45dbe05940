"""Outages: an instance that should deliver and does not, from the first sign until it is surely over.

    began ──► restart due ──► restarted ──► recheck due ──► alerted once ──► restart due again, ever later
                  │                              │                │
                  └── needs a person: no restart ┘                └──► ended, and those who were told hear of it

The row holds what is due and when; following.follow() does it. An outage ends only when the instance has been open for
a while: one that comes and goes is a single outage, and a single alert.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from instances.models import Instance, InstanceStatus, Outage
from instances.providers.base import INSTANCE_REMOVED
from pilot import alerts
from pilot.alerts.kinds import KindName

DOWN, NOT_DELIVERING = Outage.Kind.DOWN, Outage.Kind.NOT_DELIVERING
ALERTS: dict[str, KindName] = {DOWN: "instance_down", NOT_DELIVERING: "instance_not_delivering"}

CONNECTED = (InstanceStatus.OPEN, InstanceStatus.DEGRADED)
# A restart does not help these: somebody must pair the number again.
NEEDS_A_PERSON = frozenset(
    {
        INSTANCE_REMOVED,
        "removed_at_provider",
        "logged_out",
        "payment_required",
        "forbidden",
        "not_acceptable",
        "pairing_expired",
    }
)
# Why an instance that says it is open is taken for one that does not deliver (messaging/validating.py).
SUSPICIONS = frozenset({"acks_missing", "unconfirmed", "webhooks_silent", "canary_lost"})

# How long an instance may take to come back by itself; most reconnect within seconds.
PATIENCE = timedelta(minutes=1)
STABLE_AFTER = timedelta(minutes=1)
UNSTABLE_AFTER = timedelta(minutes=10)
SHORTEST_PAUSE = timedelta(minutes=10)
LONGEST_PAUSE = timedelta(hours=1)


def lost(*, instance_id: int, to: str, reason: str, at: datetime, was_connected: bool) -> None:
    """Takes in that an instance is no longer open. To be called by status.move(), which holds the instance's lock."""
    if reason in SUSPICIONS:
        return
    if not was_connected and not of(instance_id, DOWN).exists():
        return  # it was being paired for the first time
    outage = _begun(instance_id, DOWN, reason, at)
    if to == InstanceStatus.CLOSED and reason in NEEDS_A_PERSON:
        outage.restart_at, outage.recheck_at = None, outage.recheck_at or at + PATIENCE
    elif outage.recheck_at is None:
        outage.restart_at = outage.restart_at or next_restart(outage, at=at + PATIENCE)
    outage.save(update_fields=["reason", "restart_at", "recheck_at"])


def suspect(*, instance_id: int, reason: str, at: datetime) -> Outage:
    """An instance that says it is open and does not deliver: to be restarted, at once unless it was just before."""
    outage = _begun(instance_id, NOT_DELIVERING, reason, at)
    outage.restart_at = outage.restart_at or next_restart(outage, at=at)
    outage.save(update_fields=["reason", "restart_at"])
    return outage


def doubt(*, instance: Instance, reason: str, at: datetime, recheck_at: datetime) -> None:
    """An instance of which we cannot tell how it is: to be asked again before anybody is alarmed."""
    if instance.status in CONNECTED:
        begun = {"began_at": at, "reason": reason[:200], "recheck_at": recheck_at}
        Outage.objects.get_or_create(instance=instance, kind=DOWN, ended_at=None, defaults=begun)
    of(instance.pk, DOWN).filter(recheck_at=None).update(recheck_at=recheck_at)


def hasten(*, instance_id: int, at: datetime) -> None:
    """Makes the first restart due, for whoever just saw that the instance does not come back by itself."""
    of(instance_id, DOWN).filter(restart_at__gt=at, restarts=0).update(restart_at=at)


def cancel(*, instance_id: int, at: datetime) -> None:
    """Ends outages because the tenant wants the instance closed: its end is no good news."""
    for outage in Outage.objects.filter(instance=instance_id, ended_at=None):
        _end(outage, at, silently=True)


def end_those_that_are_over(*, now: datetime) -> int:
    """Ends outages whose instance is open and stays so, or proved to deliver again. Returns how many."""
    return sum(_end_if_still_over(outage, now) for outage in list(_over(now)))


def _end_if_still_over(outage: Outage, now: datetime) -> bool:
    """Under the instance's lock, as lost() is called: one that was lost again meanwhile goes on with this outage."""
    with transaction.atomic():
        Instance.objects.select_for_update(no_key=True).only("pk").filter(pk=outage.instance_id).first()
        if not _over(now).filter(pk=outage.pk).exists():
            return False
        return _end(outage, now)


def alert_those_that_last(*, now: datetime) -> int:
    """Tells of what nobody was told of yet: an instance that comes and goes may be open whenever it is asked."""
    lasting = Outage.objects.filter(ended_at=None, alerted_at=None, began_at__lte=now - UNSTABLE_AFTER)
    return sum(alert(outage, now=now) for outage in lasting)


def alert(outage: Outage, *, now: datetime) -> bool:
    """Tells those concerned, once for each outage and not of one that is over. True when it was not told before."""
    instance = Instance.objects.only("name", "tenant_id").get(pk=outage.instance_id)
    kind, subject = ALERTS[outage.kind], str(instance.pk)
    detail = {"name": instance.name, "reason": outage.reason, "since": outage.began_at.isoformat()}
    untold = Outage.objects.filter(pk=outage.pk, ended_at=None, alerted_at=None)
    with transaction.atomic():
        if not untold.update(alerted_at=now):
            return False
        raised = alerts.raise_alert(kind, subject, tenant_id=instance.tenant_id, detail=detail, now=now)
        if not raised and subject not in alerts.open_subjects(kind):
            transaction.set_rollback(
                True
            )  # it could not be written down; alert_those_that_last() tries again
            return False
    return True


def next_restart(outage: Outage, *, at: datetime) -> datetime:
    """`at`, or later when it was restarted before: 10 min after the first, then twice as long, an hour at most."""
    if outage.restarted_at is None:
        return at
    pause = min(SHORTEST_PAUSE * 2 ** min(outage.restarts - 1, 10), LONGEST_PAUSE)
    return max(at, outage.restarted_at + pause)


def may_be_restarted(instance: Instance) -> bool:
    """Whether a restart can help: it is not open, no code waits to be scanned, and nobody has to pair it again."""
    if instance.status == InstanceStatus.CLOSED:
        return instance.status_reason not in NEEDS_A_PERSON
    return instance.status == InstanceStatus.DEGRADED or (
        instance.status == InstanceStatus.CONNECTING and not instance.qr_code
    )


def of(instance_id: int, kind: str) -> QuerySet[Outage]:
    """The open outage of this kind, if there is one."""
    return Outage.objects.filter(instance=instance_id, kind=kind, ended_at=None)


def waits_for_restart() -> Q:
    """Of instances: those that must not be opened before they are restarted, whatever they say of themselves."""
    due = Outage.objects.filter(
        instance=OuterRef("pk"), kind=NOT_DELIVERING, ended_at=None, restart_at__isnull=False
    )
    return Q(Exists(due))


def _begun(instance_id: int, kind: str, reason: str, at: datetime) -> Outage:
    """The open outage, or a new one; `reason` is the newest."""
    outage, _created = Outage.objects.get_or_create(
        instance_id=instance_id, kind=kind, ended_at=None, defaults={"began_at": at}
    )
    outage.reason = reason[:200]
    return outage


def _over(now: datetime) -> QuerySet[Outage]:
    connected = Q(kind=DOWN, recheck_at=None, instance__status_changed_at__lte=now - STABLE_AFTER)
    proved = Q(
        kind=NOT_DELIVERING,
        instance__vitals__acknowledged_at__gt=Coalesce(F("restarted_at"), F("began_at")),
    )
    return Outage.objects.filter(connected | proved, ended_at=None, instance__status=InstanceStatus.OPEN)


def _end(outage: Outage, now: datetime, *, silently: bool = False) -> bool:
    """With the alert, under the row's lock: whoever would tell of it just now must find it over.

    False, and nothing is changed, when the alert's end could not be written down: left open, it would keep those
    concerned from being told of the next outage.
    """
    kind, subject = ALERTS[outage.kind], str(outage.instance_id)
    open_still = Outage.objects.select_for_update().filter(pk=outage.pk, ended_at=None)
    with transaction.atomic():
        told = open_still.values_list("alerted_at", flat=True).first()
        open_still.update(ended_at=now, restart_at=None, recheck_at=None)
        if told is None or alerts.recover(kind, subject, now=now, silently=silently):
            return True
        if subject in alerts.open_subjects(kind):
            transaction.set_rollback(True)
            return False
    return True
