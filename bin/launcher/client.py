"""JSON over HTTP to the product on this machine, past any proxy that the environment names."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TIMEOUT = 10.0  # seconds


@dataclass(frozen=True)
class Reply:
    """An answer: its HTTP status and JSON object, empty where the body was none."""

    status: int
    body: dict[str, Any]


def call(
    port: int,
    method: str,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> Reply | None:
    """Ask 127.0.0.1:port; None when nothing answers in time, as while it starts."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    content = json.dumps(body).encode() if body is not None else None
    try:
        connection.request(method, path, content, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return Reply(response.status, _object(response.read()))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _object(content: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
