"""Celery beat with one leader: whoever holds the lock ticks, the others wait for it and go on where it stopped."""

from __future__ import annotations

import os
import time
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

import psycopg
import structlog
from celery.beat import ScheduleEntry, Scheduler
from kombu import Connection

from pilot import locks
from pilot.celery import short_connection
from pilot.leading import Leadership

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
# A leader that hangs loses the lead after these. Longer than any tick: a Redis that never answers holds one up for 3 s.
HANGS_SECONDS = 6
HEARTBEAT_SECONDS = 5.0
LOST_LEAD = 3  # exit code; the supervisor restarts the process as a standby
PUBLISH_ONCE_MORE = {"max_retries": 1, "interval_start": 0}

_BEAT = """
INSERT INTO pilot_heartbeat (name, kind, progressed_at, detail) VALUES ('beat', 'beat', now(), '{}')
ON CONFLICT (name) DO UPDATE SET progressed_at = excluded.progressed_at
"""
_RUN = """
INSERT INTO pilot_beatrun (name, ran_at) VALUES (%s, now()) ON CONFLICT (name) DO UPDATE SET ran_at = excluded.ran_at
"""


class LeaderScheduler(Scheduler):
    """The table in memory, the last runs in the database: what is overdue at the start runs once, and nothing twice.

    A run is written down before it is asked for, on the connection that holds the lead. So a beat that was frozen, and
    wakes when another leads, cannot ask for anything; and the next leader knows every run that was.
    """

    leads = False
    written_at = 0.0

    def setup_schedule(self) -> None:
        super().setup_schedule()
        self.leadership = Leadership(locks.BEAT, hangs_seconds=HANGS_SECONDS)
        log.info("beat.stands_by")

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Does what is due; before it leads it only asks for the lead. Returns when to be called again, in seconds."""
        if not self.leads and not self._takes_the_lead():
            return POLL_SECONDS
        try:
            if not self.leadership.hold():
                _leave("another leads")
            wait = super().tick(*args, **kwargs)
            self._note_progress()
        except psycopg.Error as error:
            _leave(str(error))
        return min(wait, POLL_SECONDS)

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        self.leadership.execute(_RUN, [entry.name])
        super().apply_entry(entry, producer=producer)

    @cached_property
    def connection(self) -> Connection:
        """With short waits: a leader that waits for Redis looks like one that hangs."""
        return short_connection()

    def _ensure_connected(self) -> Connection:
        """Connects at the first publication, because Celery would wait here until Redis is there."""
        return self.connection

    def _takes_the_lead(self) -> bool:
        try:
            self.leads = self.leadership.hold()
            if self.leads:
                self._recall_runs()
                log.info("beat.leads")
        except psycopg.Error as error:
            self.leads = False
            log.warning("beat.database_away", error=str(error))
        return self.leads

    def _recall_runs(self) -> None:
        rows = self.leadership.execute("SELECT name, ran_at FROM pilot_beatrun").fetchall()
        runs: dict[str, datetime] = dict(rows)
        for name, entry in self.schedule.items():
            entry.last_run_at = runs.get(name, entry.last_run_at)
            entry.options = {"retry_policy": PUBLISH_ONCE_MORE} | (entry.options or {})

    def _note_progress(self) -> None:
        if time.monotonic() - self.written_at > HEARTBEAT_SECONDS:
            self.leadership.execute(_BEAT)
            self.written_at = time.monotonic()


def _leave(why: str) -> NoReturn:
    """Ends the process at once, for Celery would catch SystemExit, close its connections and answer 0."""
    log.error("beat.lost_lead", why=why)
    os._exit(LOST_LEAD)
