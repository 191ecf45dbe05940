"""One run: start everything, let clients ask while things go wrong, wait until all is settled, judge."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from launcher import paths
from launcher.chaos import evidence, ledger, schedule
from launcher.chaos.evidence import Rows
from launcher.chaos.faults import Injector
from launcher.chaos.fleet import Fleet
from launcher.chaos.journal import Journal
from launcher.chaos.ledger import Finding, Message
from launcher.chaos.listening import Listener
from launcher.chaos.provider import Provider
from launcher.chaos.report import Report
from launcher.chaos.schedule import Plan
from launcher.chaos.traffic import Traffic
from launcher.console import Console
from launcher.processes import Process
from launcher.state import State
from launcher.steps import Quiet, run_to_end

SEND_TIMEOUT = 4  # seconds
ANSWERED_WITHIN = 60.0  # seconds without any answer, after which clients leave
# A message has its end a minute after its deadline; then everything must have been quiet for a while, longer than the
# pause between two tries of a webhook.
SETTLED_AFTER_DEADLINE = 60.0
QUIET = 8.0
LOOK_EVERY = 0.5
STEP = 0.05


class Run:
    """A run in a directory of its own, which the journal and all logs are in afterwards."""

    def __init__(self, plan: Plan, state: State, console: Console) -> None:
        self._plan = plan
        self._state = state
        self._console = console
        self._began = time.monotonic()
        self._journal = Journal(state.log("journal"))
        settings = _settings(plan.seconds)
        self.fleet = Fleet(state, settings=settings, journal=self._journal, console=console)
        key = self.fleet.env["SANDBOX_API_KEY"]
        self._provider = Provider(self.fleet.addresses.sandbox_port, key=key)
        self._rows = Rows(self.fleet.addresses.database_url)

    def run(self) -> Report:
        """Everything, from start to verdict. Raises LauncherError when it cannot be done."""
        try:
            with self._console.timed("start", "PostgreSQL, Valkey, sandbox, web, 2 workers, beat, consume"):
                self.fleet.start()
            with self._console.timed(
                "stage", f"{schedule.INSTANCES} instances of {schedule.TENANTS} tenants"
            ):
                scene = self._stage()
            self._play(scene)
            self._settle(scene.traffic)
            return self._judge(scene)
        finally:
            self.fleet.stop()

    # --- before

    def _stage(self) -> _Scene:
        keys, instances = self._make_tenants()
        for number in schedule.numbers()[-schedule.ABSENT :]:
            self._provider.put_number(number, exists=False)
        for _name, provider_name in instances:
            self._provider.pair(provider_name)
        self.fleet.wait(lambda: self._rows.open_instances() == schedule.INSTANCES, "open their instances")
        web_port, names = self.fleet.addresses.web_port, [name for name, _at_provider in instances]
        return _Scene(
            traffic=Traffic(self._plan.requests, port=web_port, keys=keys, names=names),
            injector=Injector(
                self._plan.faults,
                fleet=self.fleet,
                provider=self._provider,
                instances=[at_provider for _name, at_provider in instances],
                journal=self._journal,
            ),
            listener=Listener(self.fleet.addresses.redis_url),
        )

    def _make_tenants(self) -> tuple[list[str], list[list[str]]]:
        file = self._state.root / "stage.json"
        url, key = f"http://127.0.0.1:{self.fleet.addresses.sandbox_port}", self.fleet.env["SANDBOX_API_KEY"]
        argv = [paths.python(), "-m", "launcher.chaos.staging", str(file), url, key]
        log = self._state.log("staging")
        staging = Process("staging", argv, log=log, env=self.fleet.env, cwd=paths.REPO)
        run_to_end(staging, label="stage", progress=Quiet("tenants and instances"), console=self._console)
        made = json.loads(file.read_text())
        return made["keys"], made["instances"]

    # --- while it goes on

    def _play(self, scene: _Scene) -> None:
        self._journal.begin()
        scene.listener.start()
        scene.injector.start()
        scene.traffic.start()
        while scene.injector.busy() or self._waits_for_answers(scene.traffic):
            self.fleet.sleep(STEP)
            scene.injector.step()
            self._console.status("chaos", self._progress(scene))
        scene.traffic.give_up()
        self.fleet.wait(self._provider.disarm, "let the sandbox disarm its faults")
        self._journal.write("healed", f"all; not reached: {' '.join(self.fleet.unlit()) or 'nothing'}")

    def _waits_for_answers(self, traffic: Traffic) -> bool:
        return traffic.busy() and traffic.silent_for() < ANSWERED_WITHIN

    def _progress(self, scene: _Scene) -> str:
        seconds = time.monotonic() - scene.injector.began
        faults, deaths = scene.injector.injected.total(), self.fleet.deaths.total()
        return f"{seconds:4.0f} s  {scene.traffic.answers} answers, {faults} faults, {deaths} processes ended"

    def _settle(self, traffic: Traffic) -> None:
        """Wait until nothing has moved for a while, or as long as a message may at most take."""
        latest = max((promise.deliver_until for promise in traffic.promises.values()), default=0.0)
        seen, since = self._rows.unfinished(), time.monotonic()
        while time.time() < latest + SETTLED_AFTER_DEADLINE:
            self.fleet.sleep(LOOK_EVERY)
            now = self._rows.unfinished()
            if now != seen:
                seen, since = now, time.monotonic()
            self._console.status("settling", f"{now.waiting} messages have no end yet, {now.events} events")
            if now.nothing and time.monotonic() > since + QUIET:
                break
        self._journal.write("settled", str(seen))

    # --- after

    def _judge(self, scene: _Scene) -> Report:
        self.fleet.stop_product(but="sandbox")
        scene.listener.stop()
        rows = self._rows.messages()
        messages = ledger.gather(
            evidence.promises(scene.traffic), rows, evidence.entries(self._provider, rows)
        )
        findings = [*ledger.judge(messages), *self._unannounced(scene)]
        self._write_down(messages, findings)
        self._say(scene, messages)
        return Report(
            seed=self._plan.seed,
            seconds=time.monotonic() - self._began,
            accepted=len(scene.traffic.promises),
            refused=len(scene.traffic.refused),
            unanswered=len(scene.traffic.unanswered),
            ends=ledger.tally(messages),
            faults=scene.injector.injected,
            findings=findings,
            stuck_lanes=self._rows.stuck_lanes(),
        )

    def _unannounced(self, scene: _Scene) -> Iterator[Finding]:
        heard = scene.listener.wrong(self._rows.numbered(), scene.injector.outages)
        for number, why in enumerate([*self._rows.announcing(), *heard]):
            yield Finding("unannounced", number, why)

    def _write_down(self, messages: Sequence[Message], findings: Sequence[Finding]) -> None:
        self._rows.dump(self._state.logs)
        by_number = {message.number: message for message in messages}
        with self._state.log("findings").open("w") as file:
            for finding in findings:
                file.write(f"{finding.kind} {finding.number}: {finding.why}\n")
                if finding.kind != "unannounced":
                    file.write(f"    {by_number[finding.number]}\n")

    def _say(self, scene: _Scene, messages: Sequence[Message]) -> None:
        """What the JSON line leaves out."""
        say = self._console.step
        say("faults", _counted(scene.injector.injected))
        say("ended", _counted(self.fleet.deaths))
        say("clients", f"{_counted(scene.traffic.tries)}, {scene.traffic.replayed} replayed")
        say(
            "announced",
            f"{len(scene.listener.heard)} events, {len(scene.listener.holes)} holes after outages",
        )
        closest = ledger.closest_call(messages)
        if closest is not None:
            say("deadline", f"the latest request came {closest:+.3f} s from its message's deadline")


def _settings(seconds: float) -> dict[str, str]:
    deadlines = schedule.deadlines(seconds)
    return {f"DEADLINE_{name.upper()}_SECONDS": str(seconds) for name, seconds in deadlines.items()} | {
        "SEND_TIMEOUT_SECONDS": str(SEND_TIMEOUT),
        "WHATSAPP_QUEUE_WORKER_REFRESH_MS": "2000",
    }


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())


@dataclass(frozen=True, slots=True)
class _Scene:
    """Who acts in a run."""

    traffic: Traffic
    injector: Injector
    listener: Listener
