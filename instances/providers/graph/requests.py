"""Requests to Graph: the token in a header, never in the address, which gets into logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from instances.providers.base import Account, Request, Upload

TIMEOUT = 15.0  # seconds, of everything but a send and an upload


def request(
    account: Account,
    method: str,
    *path: str,
    body: Any = None,
    query: Mapping[str, str] | None = None,
    upload: Upload | None = None,
    timeout: float = TIMEOUT,
) -> Request:
    """A request about the object at `path`; `account.base_url` has the version in it."""
    url = "/".join([account.base_url.rstrip("/"), *(quote(part, safe="") for part in path)])
    url += f"?{urlencode(query)}" if query else ""
    headers = {"Authorization": f"Bearer {account.api_key}"}
    return Request(method, url, headers=headers, json=body, upload=upload, timeout=timeout)
