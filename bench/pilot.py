"""Pilot, measured: requests accepted, messages sent, and a worker with nothing to do."""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from collections.abc import Callable, Mapping

from django.utils import timezone
from launcher import client, paths
from launcher.errors import LauncherError
from launcher.ports import free_port
from launcher.processes import Process

from bench import processor, rows
from bench.reference import Figures
from bench.stage import Stage

BUSY_INSTANCES = 50
BATCH = 1000
NOWHERE = "http://127.0.0.1:9"  # a provider that nobody calls
SETTLE_SECONDS, MEASURE_SECONDS = 15, 10
DRAIN_SECONDS = 600.0
POLL_SECONDS, MOST_SECONDS_BETWEEN_POLLS = 0.05, 5.0
SEED = paths.REPO / "bench" / "seed_stack"


# --- accept -----------------------------------------------------------------------------------------------


def accept(stage: Stage, options: argparse.Namespace) -> Figures:
    """POST /api/messages as fast as `connections` clients can, for `seconds`."""
    stage.clear()
    world = rows.make_world(instances=BUSY_INSTANCES, provider_url=NOWHERE)
    web = stage.web(options.web)
    with stage.running(web):
        stage.wait_for_web(web)
        _warm_up(stage, world)
        stage.console.status("accept", f"wrk, {options.seconds} s")
        figures = _wrk(stage, world, options)
    if rows.count_accepted() < figures.pop("answered"):
        raise LauncherError("More messages were answered with 202 than are stored and counted.")
    return figures | {"web_processes": options.web}


def _warm_up(stage: Stage, world: rows.World) -> None:
    """One request each for several times as many processes as there are, so that each has loaded everything."""
    for _ in range(16):
        reply = client.call(
            stage.addresses.web_port,
            "POST",
            "/api/messages",
            body=rows.BODY,
            headers={"apikey": world.api_key},
        )
        if reply is None or reply.status != 202:
            raise LauncherError(f"A message was not accepted: {reply}")


_LUA = """local n = 0
request = function()
  n = n + 1
  return wrk.format("POST", nil, {["Content-Type"] = "application/json", ["apikey"] = "%(key)s"},
    '{"instance":"i' .. (n %% %(instances)d) .. '","to":"5511999990000","template":"code",'
    .. '"variables":{"name":"Ana","code":"123456"}}')
end
"""


def _wrk(stage: Stage, world: rows.World, options: argparse.Namespace) -> Figures:
    script = stage.state.root / "accept.lua"
    script.write_text(_LUA % {"key": world.api_key, "instances": BUSY_INSTANCES})
    url = f"{stage.addresses.public_url}/api/messages"
    clients = ["-t1", f"-c{options.connections}", f"-d{options.seconds}s", "--latency"]
    ran = subprocess.run(
        ["wrk", *clients, "-s", str(script), url],
        capture_output=True,
        text=True,
        check=True,
        timeout=options.seconds + 60,
    )
    return _read_wrk(ran.stdout)


def _read_wrk(output: str) -> Figures:
    def figure(pattern: str) -> str:
        found = re.search(pattern, output)
        return found[1] if found else "0"

    failed = int(figure(r"Non-2xx or 3xx responses: (\d+)"))
    return {
        "requests_per_s": float(figure(r"Requests/sec:\s+([\d.]+)")),
        "p50": figure(r"\n\s+50%\s+(\S+)"),
        "p99": figure(r"\n\s+99%\s+(\S+)"),
        "failed": failed,
        "answered": int(figure(r"(\d+) requests in")) - failed,
    }


# --- accept-batch -----------------------------------------------------------------------------------------


def accept_batch(stage: Stage, options: argparse.Namespace) -> Figures:
    """POST /api/messages/batch with 1,000 messages, one client after the other, for `seconds`."""
    stage.clear()
    world = rows.make_world(instances=BUSY_INSTANCES, provider_url=NOWHERE)
    web = stage.web(options.web)
    with stage.running(web):
        stage.wait_for_web(web)
        _warm_up(stage, world)
        stage.console.status("accept-batch", f"{options.seconds} s")
        accepted, seconds = _post_batches(stage, world, options.seconds)
    if rows.count_accepted() < accepted:
        raise LauncherError("More messages were answered as accepted than are stored and counted.")
    return {
        "messages_per_s": round(accepted / seconds, 1),
        "messages": accepted,
        "web_processes": options.web,
    }


def _post_batches(stage: Stage, world: rows.World, seconds: float) -> tuple[int, float]:
    """How many messages were accepted, and within how many seconds."""
    items = [rows.BODY | {"instance": f"i{number % BUSY_INSTANCES}"} for number in range(BATCH)]
    headers = {"apikey": world.api_key}
    accepted, began = 0, time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        reply = client.call(
            stage.addresses.web_port,
            "POST",
            "/api/messages/batch",
            body={"messages": items},
            headers=headers,
            timeout=60,
        )
        if reply is None or reply.status != 200 or reply.body["refused"]:
            raise LauncherError(f"A batch was not accepted: {reply}")
        accepted += BATCH
    return accepted, took


# --- drain ------------------------------------------------------------------------------------------------


def drain(stage: Stage, options: argparse.Namespace) -> Figures:
    """Send `messages` that wait on 50 instances, to a provider that answers at once."""
    stage.clear()
    port = free_port()
    world = rows.make_world(instances=BUSY_INSTANCES, provider_url=f"http://127.0.0.1:{port}")
    workers = [stage.worker(number + 1) for number in range(options.workers)]
    provider = _provider(stage, port)
    with stage.running(provider, *workers, stage.beat()):
        stage.wait(lambda: "ready" in provider.log.read_text(), provider, "to be ready")
        _wait_until_subscribed(stage, workers)
        rows.queue(world, options.messages)
        before = _cpu_of_parts(stage, provider, workers)
        seconds = _timed_drain(stage, world, workers, options.messages)
        after = _cpu_of_parts(stage, provider, workers)
        memory = sum(processor.memory_mb(worker.pid) for worker in workers)
    return {
        "messages_per_s": round(options.messages / seconds, 1),
        "messages": options.messages,
        "seconds": round(seconds, 2),
        "workers": options.workers,
        "workers_rss_mb": memory,
        "cpu_ms_per_message": {
            part: round((after[part] - before[part]) * 1000 / options.messages, 3) for part in before
        },
    }


def _cpu_of_parts(stage: Stage, provider: Process, workers: list[Process]) -> Mapping[str, float]:
    """Seconds of processor time by part; the provider's is none of Pilot's, but takes its share of the machine."""
    parts = {"postgres": stage.postgres_pid(), "redis": stage.redis_pid(), "provider": provider.pid}
    used = {name: processor.seconds(pid) for name, pid in parts.items()}
    return {"workers": sum(processor.seconds(worker.pid) for worker in workers), **used}


def _timed_drain(stage: Stage, world: rows.World, workers: list[Process], messages: int) -> float:
    """Seconds until the last message was taken over, by its own time: looking for the end comes a little later."""
    began, began_at = time.monotonic(), timezone.now()
    rows.wake(world)
    deadline = began + DRAIN_SECONDS
    while left := rows.count_waiting():
        stage.console.status("drain", f"{left} of {messages} left")
        if time.monotonic() > deadline or not all(worker.alive() for worker in workers):
            raise LauncherError(f"{left} messages were still waiting after {time.monotonic() - began:.0f} s.")
        _pause(time.monotonic() - began, left, messages)
    if (submitted := rows.count_submitted()) != messages:
        raise LauncherError(f"{submitted} of {messages} messages were taken over by the provider.")
    return (rows.last_submitted_at() - began_at).total_seconds()


def _pause(passed: float, left: int, messages: int) -> None:
    """Counting walks what has been sent since the last vacuum: rarely at first, often when the end is near."""
    sent = messages - left
    expected = passed * left / sent if sent else 0.0
    time.sleep(min(max(expected / 2, POLL_SECONDS), MOST_SECONDS_BETWEEN_POLLS))


def _provider(stage: Stage, port: int) -> Process:
    log = stage.state.log("provider")
    log.unlink(missing_ok=True)
    env = {**stage.env, "PORT": str(port), "LATENCY_MS": "0"}
    return Process("provider", ["node", "provider.js"], log=log, env=env, cwd=SEED)


def _wait_until_subscribed(stage: Stage, workers: list[Process]) -> None:
    subscribed = lambda: rows.count_subscribed() == len(workers)  # noqa: E731
    stage.wait(subscribed, workers[0], "to subscribe to its queues")


# --- idle -------------------------------------------------------------------------------------------------


def idle(stage: Stage, options: argparse.Namespace) -> Figures:
    """A worker's memory, processor time and Redis connections when no instance has work."""
    stage.clear()
    rows.make_world(instances=options.instances, provider_url=NOWHERE)
    worker, beat = stage.worker(1), stage.beat()
    with stage.running(worker, beat):
        _wait_until_subscribed(stage, [worker])
        stage.console.status("idle", f"settling {SETTLE_SECONDS} s, then measuring {MEASURE_SECONDS} s")
        time.sleep(SETTLE_SECONDS)
        before = processor.seconds(worker.pid)
        time.sleep(MEASURE_SECONDS)
        return {
            "instances": options.instances,
            "rss_mb": processor.memory_mb(worker.pid),
            "cpu_cores": round((processor.seconds(worker.pid) - before) / MEASURE_SECONDS, 3),
            "redis_connections": int(stage.redis.info("clients")["connected_clients"]),
            "beat_rss_mb": processor.memory_mb(beat.pid),
        }


MEASUREMENTS: Mapping[str, Callable[[Stage, argparse.Namespace], Figures]] = {
    "accept": accept,
    "accept-batch": accept_batch,
    "drain": drain,
    "idle": idle,
}
