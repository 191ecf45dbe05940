"""Structured logging, with secrets and phone numbers hidden before a line is written."""

from __future__ import annotations

import logging
import re
from collections.abc import MutableMapping
from typing import Any

import structlog

SECRET_NAMES = re.compile(r"(?i)api_?key|token|secret|password|authorization|credentials")
HOOK = re.compile(r"(/hooks/\w+/)[^/\s\"']+")  # the secret of an inbound webhook
PHONE = re.compile(r"(?<![\w-])\+?\d{6,11}(\d{4})(?![\w-])")

EventDict = MutableMapping[str, Any]


def redact(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Hides values named like secrets, secrets in our own URLs, and all but the last four digits of numbers."""
    for name, value in event.items():
        if SECRET_NAMES.search(name):
            event[name] = "***"
        elif isinstance(value, str):
            event[name] = PHONE.sub(r"***\1", HOOK.sub(r"\1***", value))
    return event


def logging_settings(*, level: str, json: bool) -> dict[str, Any]:
    """Django's LOGGING: one handler, lines for people or JSON for machines."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        redact,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level)),
        cache_logger_on_first_use=True,
    )
    # Tracebacks without local variables: those hold secrets.
    for_machines: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    for_people: list[Any] = [
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    ]
    formatter = {
        "()": structlog.stdlib.ProcessorFormatter,
        "foreign_pre_chain": shared,
        "processors": [
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            *(for_machines if json else for_people),
        ],
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": formatter},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": {
            "httpx": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
        },
    }
