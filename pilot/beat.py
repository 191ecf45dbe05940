"""Celery beat with one leader: whoever holds the lock ticks, the others wait for it."""

from __future__ import annotations

import sys
import time
from typing import Any

import psycopg
import structlog
from celery.beat import Scheduler

from pilot import locks
from pilot.leading import Leadership

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
HEARTBEAT_SECONDS = 5.0
LOST_LEAD = 3  # exit code; the supervisor restarts the process as a standby

_BEAT = """
INSERT INTO pilot_heartbeat (name, kind, progressed_at, detail) VALUES ('beat', 'beat', now(), '{}')
ON CONFLICT (name) DO UPDATE SET progressed_at = excluded.progressed_at
"""


class LeaderScheduler(Scheduler):
    """Keeps the schedule in memory: intervals count from the start, nothing is made up for."""

    leadership: Leadership | None = None
    written_at = 0.0

    def setup_schedule(self) -> None:
        """Waits for the lead here and not in __init__, because beat builds a second scheduler for its banner."""
        super().setup_schedule()
        self.merge_inplace(self.app.conf.beat_schedule)
        self.leadership = Leadership(locks.BEAT)
        while not self.leadership.hold():
            time.sleep(POLL_SECONDS)
        log.info("beat.leads")

    def tick(self, *args: Any, **kwargs: Any) -> float:
        assert self.leadership is not None
        self._check_lead(self.leadership)
        wait = super().tick(*args, **kwargs)
        self._note_progress(self.leadership)
        return min(wait, POLL_SECONDS)

    def _check_lead(self, leadership: Leadership) -> None:
        try:
            if leadership.hold():
                return
        except psycopg.Error as error:
            log.error("beat.database_away", error=str(error))
        log.error("beat.lost_lead")
        sys.exit(LOST_LEAD)

    def _note_progress(self, leadership: Leadership) -> None:
        if time.monotonic() - self.written_at > HEARTBEAT_SECONDS:
            leadership.execute(_BEAT)
            self.written_at = time.monotonic()
