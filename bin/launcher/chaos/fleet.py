"""The product's processes and its engines, which may be killed in every way and always come back."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from launcher import health, paths, product
from launcher.chaos.journal import Journal
from launcher.console import Console
from launcher.engines import Engine, Postgres, Valkey
from launcher.errors import LauncherError, tail
from launcher.ports import free_port
from launcher.processes import Process
from launcher.product import Addresses
from launcher.state import State
from launcher.steps import Quiet, run_to_end

RESTARTED_AFTER = 0.3  # seconds
START_SECONDS = 90.0
TICK = 0.05  # seconds
KINDS: Mapping[str, str] = {
    "web": "web",
    "worker1": "worker",
    "worker2": "worker",
    "consume": "consume",
}
SANDBOX_OPTIONS = ["--wait-scale", "0.3", "--retry-scale", "0.02", "--receipts-after", "0.3,0.9,1.8"]
ABSENT = ("EVOLUTION_URL", "EVOLUTION_API_KEY", "DATABASE_URL", "REDIS_URL")  # of the caller's shell


class Fleet:
    """Engines and processes of one run, in one directory. To be used from one thread (see launcher.supervisor)."""

    def __init__(
        self, state: State, *, settings: Mapping[str, str], journal: Journal, console: Console
    ) -> None:
        self._state = state
        self._console = console
        self._journal = journal
        self._restart_at: dict[str, float] = {}
        self.deaths: Counter[str] = Counter()
        self.postgres = Postgres(state.root / "postgres", log=state.log("postgres"))
        self.valkey = Valkey(state.root / "valkey", log=state.log("valkey"))
        self.addresses = Addresses(
            database_url=self.postgres.url,
            redis_url=self.valkey.url,
            web_port=free_port(),
            sandbox_port=free_port(),
        )
        self.env = self._environment(settings)
        self.parts = self._parts()

    # --- the whole

    def start(self) -> None:
        """Start everything, and wait until each kind of process makes progress."""
        for engine in (self.postgres, self.valkey):
            engine.start()
        self.run_to_end("migrate", "migrate", "--noinput")
        for part in self.parts.values():
            part.start()
        self.wait(
            lambda: not health.missing_parts(self.addresses.web_port, since=START_SECONDS), "make progress"
        )

    def stop(self) -> None:
        """Stop the product, then its engines."""
        self.stop_product()
        for engine in (self.valkey, self.postgres):
            engine.stop()

    def stop_product(self, *, but: str = "") -> None:
        """Stop every process that is not an engine, each finishing what it is at, `but` one."""
        parts = [part for name, part in self.parts.items() if name != but]
        for part in parts:
            part.request_stop()
        for part in parts:
            part.stop()

    def look(self) -> None:
        """Notice processes that ended, and start them again a moment later, whatever ended them."""
        for name, part in self.parts.items():
            if part.alive():
                continue
            if name not in self._restart_at:
                self._note_death(name, part)
            elif time.monotonic() >= self._restart_at[name]:
                del self._restart_at[name]
                part.start()

    def sleep(self, seconds: float) -> None:
        """Let time pass while looking after the processes."""
        until = time.monotonic() + seconds
        while True:
            self.look()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(TICK, left))

    def wait(self, done: Callable[[], bool], what: str, *, seconds: float = START_SECONDS) -> None:
        """Poll until `done`. Raises LauncherError with the ends of all logs."""
        until = time.monotonic() + seconds
        while not done():
            if time.monotonic() > until:
                logs = "\n".join(f"  {name}\n{tail(part.log)}" for name, part in self.parts.items())
                raise LauncherError(f"The processes did not {what} within {seconds:.0f} s.\n{logs}")
            self.sleep(0.2)

    def run_to_end(self, name: str, *arguments: str) -> None:
        """Run a command of manage.py. Raises LauncherError with its output."""
        command = product.manage(name, *arguments, env=self.env, log=self._state.log(name))
        run_to_end(command, label=name, progress=Quiet("running"), console=self._console)

    # --- one of them

    def kill(self, name: str) -> None:
        """kill -9 of a process and all that it started."""
        self.parts[name].kill()

    def light(self, name: str, step: str, after: int) -> None:
        """Let a process die by itself when it gets to a named step for the `after`-th time."""
        unfinished = self._fuses(name).with_suffix(".new")
        unfinished.write_text(str(after))
        unfinished.rename(self._fuses(name) / step)

    def unlit(self) -> list[str]:
        """Take away the fuses that no process reached, and tell of which steps."""
        fuses = [fuse for name in KINDS for fuse in self._fuses(name).iterdir()]
        for fuse in fuses:
            fuse.unlink()
        return sorted(fuse.name for fuse in fuses)

    def freeze(self, engine: Engine) -> None:
        """Let a server accept connections and never answer."""
        os.kill(engine.pid, signal.SIGSTOP)

    def thaw(self, engine: Engine) -> None:
        """Let a frozen server go on."""
        os.kill(engine.pid, signal.SIGCONT)

    # --- how they are made

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        secrets = self._state.secrets()
        env = product.environment(self.addresses, secrets)
        kept = {name: value for name, value in env.items() if name not in ABSENT}
        return kept | {
            "DATABASE_URL": self.addresses.database_url,
            "REDIS_URL": self.addresses.redis_url,
            "SANDBOX_API_KEY": secrets["EVOLUTION_API_KEY"],
            "DJANGO_SETTINGS_MODULE": "pilot.settings",
            "PYTHONPATH": str(paths.REPO / "bin"),
            **settings,
        }

    def _parts(self) -> dict[str, Process]:
        models = {part.name: part for part in product.processes(self._state, self.addresses, self.env)}
        models["sandbox"].argv += SANDBOX_OPTIONS
        worker = models.pop("worker")
        for number in (1, 2):
            models[f"worker{number}"] = self._renamed(worker, number)
        for name, kind in KINDS.items():
            models[name].argv = self._mortal(models[name].argv, kind, self._fuses(name))
        return models

    def _renamed(self, worker: Process, number: int) -> Process:
        name = f"worker{number}"
        argv = [f"{name}@chaos" if word == product.WORKER_NAME else word for word in worker.argv]
        return Process(
            name, argv, log=self._state.log(name), env=worker.env, cwd=worker.cwd, grace=worker.grace
        )

    def _mortal(self, argv: list[str], kind: str, fuses: Path) -> list[str]:
        python, *command = argv
        return [python, "-m", "launcher.chaos.dying", kind, str(fuses), "--", *command]

    def _fuses(self, name: str) -> Path:
        directory = self._state.root / "fuses" / name
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def _note_death(self, name: str, part: Process) -> None:
        self.deaths[name] += 1
        self._restart_at[name] = time.monotonic() + RESTARTED_AFTER
        self._journal.write("ended", f"{name} (exit code {part.exit_code})")
