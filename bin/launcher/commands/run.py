"""bin/run: from a clone to a running product that has delivered a message."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping

from launcher import demo, health, product, translations, venv
from launcher.commands import conduct
from launcher.console import Console
from launcher.engines import Postgres, Valkey
from launcher.errors import LauncherError
from launcher.ports import is_free
from launcher.product import Addresses
from launcher.state import State
from launcher.steps import run_to_end
from launcher.supervisor import Stopped, Supervisor


def main(argv: list[str]) -> int:
    """Run the command; 0 when it did what was asked."""
    options = _parser().parse_args(argv)
    return conduct(lambda console: _run(options, console))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bin/run",
        description="Start all of Pilot on this machine and send a demo message through it.",
        epilog="With DATABASE_URL or REDIS_URL set, that server is used and none of its kind is started.",
    )
    parser.add_argument(
        "--once", action="store_true", help="stop after the demo message; exit 0 if it was read"
    )
    parser.add_argument("--port", type=int, metavar="N", help="the web port (8000, or a free one)")
    parser.add_argument("--reset", action="store_true", help="throw away the data of earlier runs first")
    parser.add_argument("--yes", action="store_true", help="with --reset: do not ask")
    return parser


def _run(options: argparse.Namespace, console: Console) -> int:
    state = State.of_checkout()
    with state.running():
        if options.reset:
            _reset(state, confirmed=options.yes, console=console)
        state.rotate_logs()
        venv.ensure(console)
        return Run(state, options, console).run()


def _reset(state: State, *, confirmed: bool, console: Console) -> None:
    external = [name for name in ("DATABASE_URL", "REDIS_URL") if name in os.environ]
    if external:
        raise LauncherError(f"--reset deletes only data of its own servers, and {external[0]} names another.")
    if not confirmed and not _agrees(state):
        raise LauncherError("Nothing was deleted.")
    state.throw_away()
    console.step("reset", f"data in {state.root} deleted")


def _agrees(state: State) -> bool:
    if not sys.stdin.isatty():
        raise LauncherError("--reset asks first; without a terminal say --yes.")
    return input(f"Delete all data in {state.root}? [y/N] ").strip().lower() in ("y", "yes")


class Run:
    """One start of the product, from servers to demo message to stop."""

    def __init__(self, state: State, options: argparse.Namespace, console: Console) -> None:
        self._state = state
        self._options = options
        self._console = console
        self._secrets = state.secrets()
        self._supervisor = Supervisor(console)

    def run(self) -> int:
        """Start, demonstrate, and stay until stopped unless --once."""
        began = time.monotonic()
        try:
            addresses = self._start_engines()
            env = self._environment(addresses)
            translations.ensure(self._console, env)
            self._migrate(env)
            self._start_processes(addresses, env)
            account = demo.prepare(self._state, env, supervisor=self._supervisor, console=self._console)
            if self._options.once:
                self._deliver(addresses, account)
                self._console.say(f"  Everything works ({time.monotonic() - began:.0f} s in all); stopping.")
                return 0
            return self._stay(addresses, account)
        finally:
            self._supervisor.stop()

    def _environment(self, addresses: Addresses) -> dict[str, str]:
        common = product.environment(addresses, self._secrets)
        return common | product.sandbox_environment(addresses, self._secrets)

    def _start_engines(self) -> Addresses:
        web_port = self._web_port()
        started = product.engines(self._state, self._secrets)
        for engine in started:
            with self._console.timed(engine.name, f"127.0.0.1:{engine.port}"):
                self._supervisor.start(engine)
        return Addresses(
            database_url=product.url_of("DATABASE_URL", Postgres, started),
            redis_url=product.url_of("REDIS_URL", Valkey, started),
            web_port=web_port,
            sandbox_port=self._state.ports.take("sandbox", default=product.DEFAULT_PORTS["sandbox"]),
        )

    def _web_port(self) -> int:
        asked: int | None = self._options.port
        if asked is None:
            return self._state.ports.take("web", default=product.DEFAULT_PORTS["web"])
        if not is_free(asked):
            raise LauncherError(f"Port {asked} is taken by another program.")
        return self._state.ports.keep("web", asked)

    def _migrate(self, env: Mapping[str, str]) -> None:
        command = product.manage("migrate", "migrate", "--noinput", env=env, log=self._state.log("migrate"))
        progress = MigrateProgress()
        seconds = run_to_end(command, label="migrations", progress=progress, console=self._console)
        self._console.step("migrations", f"{progress.applied} applied ({seconds:.1f} s)")

    def _start_processes(self, addresses: Addresses, env: Mapping[str, str]) -> None:
        processes = product.processes(self._state, addresses, env)
        self._supervisor.start(*processes)
        logs = {process.name: process.log for process in processes}
        seconds = health.wait_for_progress(
            addresses.web_port, logs=logs, supervisor=self._supervisor, console=self._console
        )
        self._console.step("processes", f"{', '.join(logs)} make progress ({seconds:.1f} s)")

    def _deliver(self, addresses: Addresses, account: demo.Demo) -> None:
        for message in account.messages:
            courier = demo.Courier(
                addresses.web_port, account, message, supervisor=self._supervisor, console=self._console
            )
            self._console.say(f"  Read after {courier.deliver():.1f} s.")

    def _stay(self, addresses: Addresses, account: demo.Demo) -> int:
        try:
            self._deliver(addresses, account)
        except LauncherError as error:
            self._console.fail(str(error))  # the dashboard is where to look next, so it stays up
        demo.explain(account, public_url=addresses.public_url, logs=self._state.logs, console=self._console)
        self._console.say("\n  Ctrl-C stops everything; the data stays for the next bin/run.")
        try:
            while True:
                self._supervisor.sleep(1.0)
        except Stopped:
            self._console.say("\n  Stopping ...")
            return 0


class MigrateProgress:
    """Counts the migrations that Django applies and names the one at hand."""

    def __init__(self) -> None:
        self.applied = 0
        self._latest = "reading"

    def feed(self, line: str) -> None:
        """Take in one line of output."""
        words = line.split()
        if words[:1] == ["Applying"]:
            self.applied += 1
            self._latest = words[1].rstrip(".")

    def text(self) -> str:
        """The count and the newest migration."""
        return f"{self.applied} applied, {self._latest}"
