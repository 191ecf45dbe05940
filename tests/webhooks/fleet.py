"""Twenty healthy endpoints, perhaps a dead one, and events at a steady pace: how late do the healthy ones hear?

`python -m tests.webhooks.fleet [events]` makes the comparison of docs/webhooks.md on the database of DATABASE_URL,
which it empties, and prints the figures.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

HEALTHY = 20
PER_SECOND = 200


@dataclass(frozen=True)
class Run:
    """Latencies in seconds, from the event's row to the receiver."""

    latencies: list[float]
    seconds: float

    @property
    def p95(self) -> float:
        return quantiles(self.latencies, n=20)[-1]


@contextmanager
def sending_process(**env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that fans out and delivers to this machine."""
    from django.conf import settings

    from tests.product.running import database_url

    process = subprocess.Popen(
        [sys.executable, "-m", "tests.webhooks.sending_process"],
        env=os.environ
        | {
            "DATABASE_URL": database_url(),
            "DJANGO_SETTINGS_MODULE": "pilot.settings",
            "OUTBOUND_NETWORKS": "127.0.0.0/8",
            "LOG_LEVEL": "ERROR",
        }
        | env,
        cwd=settings.BASE_DIR,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=10)


def run(events: int, *, dead: bool) -> Run:
    """Lets `events` happen to twenty healthy endpoints in turn, and as many to a dead one where there is one."""
    from tests.factories import make_tenant
    from tests.providers import peer
    from tests.webhooks.receiver import Receiver
    from tests.webhooks.tellings import make_endpoint

    receiver, silent = Receiver(), peer.Peer(peer.hang)
    healthy = [make_endpoint(make_tenant(), url=receiver.url(f"/{number}")) for number in range(HEALTHY)]
    others = [make_endpoint(make_tenant(), url=silent.url)] if dead else []
    try:
        with sending_process():
            _warm_up(receiver, healthy)
            return _measure(receiver, healthy, others, events)
    finally:
        receiver.close()
        silent.close()


def throughput(deliveries: int) -> float:
    """Deliveries a second of one process, from a backlog for twenty healthy endpoints."""
    from tests.factories import make_tenant
    from tests.webhooks.receiver import Receiver, eventually
    from tests.webhooks.tellings import fan_out, make_endpoint
    from webhooks.models import WebhookDelivery

    receiver = Receiver()
    healthy = [make_endpoint(make_tenant(), url=receiver.url(f"/{number}")) for number in range(HEALTHY)]
    for number in range(deliveries):
        happen(healthy[number % HEALTHY])
    fan_out()
    with sending_process():
        eventually(lambda: receiver.calls, within=60)
        started = time.monotonic()
        waiting = WebhookDelivery.objects.exclude(status="delivered")
        eventually(lambda: not waiting.exists(), within=600)
        seconds = time.monotonic() - started
    receiver.close()
    return deliveries / seconds


def _warm_up(receiver: Any, endpoints: list[Any]) -> None:
    from tests.webhooks.receiver import eventually

    for endpoint in endpoints:
        happen(endpoint)
    eventually(lambda: len(receiver.calls) == len(endpoints), within=60)


def _measure(receiver: Any, healthy: list[Any], dead: list[Any], events: int) -> Run:
    from tests.webhooks.receiver import eventually

    before = len(receiver.calls)
    happened: dict[str, float] = {}
    started = time.monotonic()
    for number in range(events):
        happened[happen(healthy[number % HEALTHY])] = time.monotonic()
        for endpoint in dead:
            happen(endpoint)
        time.sleep(max(0.0, started + number / PER_SECOND - time.monotonic()))
    eventually(lambda: len(receiver.calls) == before + events, within=120)
    arrived = {call.id: call.at for call in receiver.calls[before:]}
    return Run([arrived[name] - at for name, at in happened.items()], time.monotonic() - started)


def happen(endpoint: Any) -> str:
    """Lets something happen that the endpoint is told of. Returns the event's name."""
    from django.utils import timezone

    from accounts import events

    event = events.record(
        tenant_id=endpoint.tenant_id,
        kind="optin.changed",
        data={"number": "+5511999990000", "status": "granted", "source": "form"},
        at=timezone.now(),
    )
    return f"evt_{event.pk}"


def main() -> None:
    import django

    django.setup()
    from django.core.management import call_command

    events = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    runs = {}
    for dead in (False, True, False, True):
        call_command("flush", interactive=False, verbosity=0)
        one = run(events, dead=dead)
        runs.setdefault(dead, []).append(one.p95)
        sys.stdout.write(f"dead={dead} p95={one.p95:.3f}s {events / one.seconds:.0f} events/s\n")
        sys.stdout.flush()
    sys.stdout.write(f"p95 with a dead one / without: {min(runs[True]) / min(runs[False]):.2f}\n")
    call_command("flush", interactive=False, verbosity=0)
    sys.stdout.write(f"throughput: {throughput(2 * events):.0f} deliveries/s\n")
    call_command("flush", interactive=False, verbosity=0)


if __name__ == "__main__":
    main()
