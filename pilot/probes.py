"""The health doors: /livez (no I/O), /readyz (can serve), /health (who makes progress)."""

from __future__ import annotations

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.utils import timezone

from pilot import health


def livez(request: HttpRequest) -> JsonResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    """The database answers and has every migration."""
    try:
        executor = MigrationExecutor(connection)
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return JsonResponse({"status": "unavailable", "reason": "database"}, status=503)
    if pending:
        return JsonResponse({"status": "unavailable", "reason": "migrations"}, status=503)
    return JsonResponse({"status": "ok"})


def report(request: HttpRequest) -> JsonResponse:
    """Each process with the age of its last progress; 503 when a kind of process makes none."""
    try:
        body = health.report(now=timezone.now())
    except DatabaseError:
        return JsonResponse({"status": "degraded", "missing": ["database"], "processes": []}, status=503)
    return JsonResponse(body, status=200 if body["status"] == "ok" else 503)
