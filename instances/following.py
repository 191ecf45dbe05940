"""What follows an outage: the second and the third phase of the health check, when the outage's row says so.

Restart, in parallel and within a limit; settings.HEALTHCHECK_SLEEP later ask again; alert once where it did not help.
The wait is a time in the row: nobody sleeps, and a process that dies loses nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F

from instances import asking, connecting, health, hooks, outages, status
from instances.asking import Subjects
from instances.models import Instance, Outage
from instances.providers.base import DISCONNECTED, INSTANCE_REMOVED, Pairing, ProviderError
from pilot.leases import lease

RUN_SECONDS = 40.0
LEASE = timedelta(seconds=75)  # longer than a run, and the batch that it may begin at its end
UNSTABLE_AFTER = timedelta(
    minutes=10
)  # one that comes and goes for so long is told of, even when it is open now
AGAIN = timedelta(minutes=1)  # when to ask again what could not be found out


def follow(*, now: datetime) -> dict[str, int]:
    """Ends outages that are over, then restarts, asks again and alerts where that is due. Returns counts.

    One run at a time, of about 40 s at most; what is not reached is still due for the next.
    """
    with lease("instances.outages", lasts=LEASE) as ours:
        if not ours:
            return {}
        until = time.monotonic() + RUN_SECONDS
        counts = Counter(ended=outages.end_those_that_are_over(now=now))
        counts.update(_in_batches(_restart_batch, now, until))
        counts.update(_in_batches(_recheck_batch, now, until))
        counts["told_late"] = outages.alert_those_that_last(now=now)
    return {word: count for word, count in counts.items() if count}


def _in_batches(
    batch: Callable[[datetime], Counter[str] | None], now: datetime, until: float
) -> Counter[str]:
    """Repeats `batch` until it finds nothing (None) or the time is up."""
    counts: Counter[str] = Counter()
    while time.monotonic() < until and (did := batch(now)) is not None:
        counts.update(did)
    return counts


def _take(column: str, now: datetime, limit: int) -> list[Outage]:
    """Locks outages of which `column` is due, the longest due first. To be called in a transaction."""
    due = Outage.objects.filter(ended_at=None, **{f"{column}__lte": now}).order_by(column, "pk")
    locked = due.select_for_update(skip_locked=True, of=("self",)).select_related("instance")
    return list(locked.defer("instance__credentials", "instance__hook_token")[:limit])


# --- phase 2: restart -------------------------------------------------------------------------------------


def _restart_batch(now: datetime) -> Counter[str] | None:
    """Written down before it is done: a process that dies costs a restart, and never makes a second one."""
    with transaction.atomic():
        taken = _take("restart_at", now, settings.HEALTHCHECK_RESTARTS_AT_ONCE)
        if not taken:
            return None
        restarted = [outage for outage in taken if outages.may_be_restarted(outage.instance)]
        _update(taken, restart_at=None)
        recheck_at = now + settings.HEALTHCHECK_SLEEP
        _update(restarted, restarted_at=now, restarts=F("restarts") + 1, recheck_at=recheck_at)
    subjects = _restartable(asking.subjects({outage.instance_id for outage in restarted}))
    deaf = {outage.instance_id for outage in restarted if outage.reason == "webhooks_silent"}
    _set_hooks({key: subject for key, subject in subjects.items() if key in deaf})
    return _restart(subjects, now)


def _update(taken: Iterable[Outage], **values: object) -> None:
    Outage.objects.filter(pk__in=[outage.pk for outage in taken]).update(**values)


def _restartable(subjects: Subjects) -> Subjects:
    """Some providers have no connection that could be made anew."""
    return {key: each for key, each in subjects.items() if "restart" in each.provider.supports}


def _set_hooks(subjects: Subjects) -> None:
    asking.ask(
        {
            key: each.provider.set_hook(each.account, hooks.config_of(each.instance))
            for key, each in subjects.items()
        }
    )


def _restart(subjects: Subjects, now: datetime) -> Counter[str]:
    """Gives instances new sockets; one that is closed is connected instead, as in connecting.restart()."""
    for key in subjects:
        status.note(instance_id=key, kind="restarted", at=now, detail={"reason": "health_check"})
    answers = asking.ask({key: each.provider.restart(each.account) for key, each in subjects.items()})
    failed = {key: answer.code for key, answer in answers.items() if isinstance(answer, ProviderError)}
    pairings = _connect({key: subjects[key] for key, code in failed.items() if code == DISCONNECTED})
    for key, pairing in pairings.items():
        connecting.apply_connection(instance=subjects[key].instance, event=pairing, now=now)
    for key in [key for key, code in failed.items() if code == INSTANCE_REMOVED]:
        health.move(subjects[key].instance, status.CLOSED, INSTANCE_REMOVED, now)
    refused = len(failed.keys() - pairings.keys())
    return Counter(restarted=len(subjects) - refused, not_restarted=refused)


def _connect(subjects: Subjects) -> dict[int, Pairing]:
    answers = asking.ask({key: each.provider.connect(each.account) for key, each in subjects.items()})
    return {key: answer for key, answer in answers.items() if isinstance(answer, Pairing)}


# --- phase 3: ask again, and alert ------------------------------------------------------------------------


def _recheck_batch(now: datetime) -> Counter[str] | None:
    with transaction.atomic():
        taken = _take("recheck_at", now, asking.BATCH)
        if not taken:
            return None
        _update(taken, recheck_at=now + AGAIN)
    subjects = asking.subjects({outage.instance_id for outage in taken})
    words = asking.states(subjects)
    known = [outage for outage in taken if outage.instance_id in words]
    return Counter(
        _judge(outage, subjects[outage.instance_id].instance, words[outage.instance_id], now)
        for outage in known
    )


def _judge(outage: Outage, instance: Instance, word: str, now: datetime) -> str:
    """What the provider's word means for the outage: back, down, or unknown, which is asked again in a minute.

    One that is down and was never restarted, because it was only doubted, is to be restarted before anybody is alarmed.
    """
    if word == "open":
        health.move(instance, status.OPEN, "rechecked", now)
        _update([outage], recheck_at=None)
        return "back"
    if word not in health.LOST and word not in health.SILENT:
        return "unknown"
    health.move(instance, health.LOST.get(word, status.DEGRADED), word, now)
    instance.refresh_from_db(fields=["status", "status_reason", "qr_code"])
    curable = outages.may_be_restarted(instance)
    if curable and outage.restarts == 0 and word in health.LOST:
        _update([outage], recheck_at=None, restart_at=now)
        return "to_restart"
    outages.alert(outage, now=now)
    _update([outage], recheck_at=None, restart_at=outages.next_restart(outage, at=now) if curable else None)
    return "down"
