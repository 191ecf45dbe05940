"""The health doors: /livez (no I/O), /readyz (can serve), /health (who makes progress)."""

from __future__ import annotations

from functools import cache

from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from pilot import health
from pilot.operators import operators_only
from pilot.reporting import reports


def livez(request: HttpRequest) -> JsonResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    """The database answers and has every migration."""
    try:
        applied = set(MigrationRecorder(connection).applied_migrations())
    except DatabaseError:
        return JsonResponse({"status": "unavailable", "reason": "database"}, status=503)
    if not _migrations() <= applied:
        return JsonResponse({"status": "unavailable", "reason": "migrations"}, status=503)
    return JsonResponse({"status": "ok"})


@cache
def _migrations() -> frozenset[tuple[str, str]]:
    """Those that this release brings. Read from the disk once: anybody may ask for /readyz, as often as they like."""
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)


@operators_only
def report(request: HttpRequest) -> HttpResponse:
    """Processes by the age of their last progress, queues, streams, alerts; 503 when a part makes no progress."""
    now = timezone.now()
    try:
        body = health.report(now=now) | reports(now)
    except DatabaseError:
        return JsonResponse({"status": "degraded", "missing": ["database"], "processes": []}, status=503)
    return JsonResponse(body, status=200 if body["status"] == "ok" else 503)
