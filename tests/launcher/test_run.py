"""bin/run from a clone with a space in its path, real servers, and a stand-in for the product."""

from __future__ import annotations

import os
import signal
import socket

import pytest
from launcher.processes import fingerprint

from tests.launcher.conftest import Clone, wait_until

PROCESSES = ("web", "worker", "beat", "consume", "sandbox")
UP = "Ctrl-C stops everything"


def test_once_delivers_the_message_and_stops_everything(clone: Clone) -> None:
    done = clone.run("run", "--once")

    assert done.code == 0, done.output
    assert "+0.800 s  status        read" in done.output
    assert [name for name in PROCESSES if fingerprint(clone.pid(name))] == []
    assert {path.stem for path in (clone.root / "reports").glob("*.stopped")} == set(PROCESSES)
    assert all(_is_free(port) for port in clone.ports().values())


def test_takes_other_ports_when_its_own_are_taken(clone: Clone) -> None:
    ports = clone.ports()
    with (
        socket.create_server(("127.0.0.1", ports["web"])),
        socket.create_server(("127.0.0.1", ports["postgres"])),
    ):
        done = clone.run("run", "--once")

    assert done.code == 0, done.output
    assert clone.ports()["web"] != ports["web"]
    assert clone.ports()["postgres"] != ports["postgres"]
    assert clone.ports()["valkey"] == ports["valkey"]


def test_refuses_an_asked_port_that_is_taken(clone: Clone) -> None:
    with _occupied(0) as taken:
        port = taken.getsockname()[1]
        done = clone.run("run", "--port", str(port))

    assert done.code == 1
    assert f"Port {port} is taken" in done.output


def test_restarts_a_killed_process_and_stops_all_on_sigterm(clone: Clone) -> None:
    launch = clone.start("run")
    launch.wait_for(UP)
    worker = clone.pid("worker")

    os.kill(worker, signal.SIGKILL)
    launch.wait_for("worker ended (exit code -9); restart in 0.5 s")
    wait_until(lambda: clone.pid("worker") != worker, "a new worker")
    launch.stop(signal.SIGTERM)

    assert launch.code == 0, launch.output
    assert [name for name in PROCESSES if fingerprint(clone.pid(name))] == []
    assert all(_is_free(port) for port in clone.ports().values())


def test_takes_everything_down_when_killed_and_starts_again_as_before(clone: Clone) -> None:
    launch = clone.start("run")
    launch.wait_for(UP)
    ports, secrets = clone.ports(), (clone.state / "env.json").read_text()

    launch.stop(signal.SIGKILL)

    wait_until(lambda: not any(fingerprint(clone.pid(name)) for name in PROCESSES), "no process left")
    again = clone.run("run", "--once")
    assert again.code == 0, again.output
    assert clone.ports() == ports
    assert (clone.state / "env.json").read_text() == secrets
    assert (clone.state / "env.json").stat().st_mode & 0o777 == 0o600


def test_refuses_to_run_twice_in_one_clone(clone: Clone) -> None:
    launch = clone.start("run")
    launch.wait_for("PostgreSQL")

    second = clone.run("run")

    assert second.code == 1
    assert f"already runs from this clone (pid {launch.process.pid})" in second.output


def test_shows_the_log_of_a_process_that_does_not_start(clone: Clone) -> None:
    done = clone.run("run", "--once", STANDIN="worker-crashes")

    assert done.code == 1
    assert "worker does not start" in done.output
    assert "| worker: cannot import the settings" in done.output


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("refuses", 'not accepted: 422 {"error": {"code": "opted_out"}}'),
        ("fails", "it is failed.\n  The instance is closed."),
    ],
)
def test_once_tells_why_the_message_was_not_read(clone: Clone, trouble: str, reason: str) -> None:
    done = clone.run("run", "--once", STANDIN=trouble)

    assert done.code == 1
    assert reason in done.output


def test_reset_asks_before_it_deletes(clone: Clone) -> None:
    data = clone.state / "data"
    data.touch()

    done = clone.run("run", "--once", "--reset")

    assert done.code == 1
    assert "say --yes" in done.output
    assert data.exists()


def test_reset_starts_with_fresh_data(clone: Clone) -> None:
    data = clone.state / "data"
    data.touch()

    done = clone.run("run", "--once", "--reset", "--yes")

    assert done.code == 0, done.output
    assert not data.exists()


def test_starts_no_server_that_the_environment_names(clone: Clone) -> None:
    there = {"DATABASE_URL": "postgres://there/pilot", "REDIS_URL": "redis://there"}

    done = clone.run("run", "--once", **there)
    reset = clone.run("run", "--reset", "--yes", **there)

    assert done.code == 0, done.output
    assert "PostgreSQL" not in done.output
    assert "Valkey" not in done.output
    assert reset.code == 1
    assert "DATABASE_URL names another" in reset.output


def _occupied(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def _is_free(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0
