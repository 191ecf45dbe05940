"""One HTTP request to an address that an operator chose: bounded as a whole, and following nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from pilot.alerts.channels import NotDelivered

SECONDS = 10.0  # for the whole exchange, however slowly the answer drips
LONGEST_WAIT_SECONDS = 3600.0
BUSY = frozenset({408, 425, 429})


def post(url: str, *, headers: Mapping[str, str] | None = None, **body: Any) -> None:
    """Posts `body` (as httpx takes it: `data` or `content`) and returns when the answer is a 2xx.

    Raises NotDelivered: final for an answer that will not change, else to be tried again.
    """
    try:
        response = asyncio.run(asyncio.wait_for(_post(url, headers, body), SECONDS))
    except (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError) as error:
        raise NotDelivered(type(error).__name__) from error
    if not response.is_success:
        raise _refused(response)


async def _post(url: str, headers: Mapping[str, str] | None, body: Mapping[str, Any]) -> httpx.Response:
    """The answer without its body, which nobody needs."""
    async with (
        httpx.AsyncClient(timeout=SECONDS, trust_env=False, follow_redirects=False) as client,
        client.stream("POST", url, headers=headers, **body) as response,
    ):
        return response


def _refused(response: httpx.Response) -> NotDelivered:
    again = response.is_server_error or response.status_code in BUSY
    return NotDelivered(
        f"HTTP {response.status_code}",
        final=not again,
        retry_after=_seconds(response.headers.get("retry-after", "")),
    )


def _seconds(retry_after: str) -> float | None:
    """Retry-After, in seconds or as a date; None for what is neither."""
    if retry_after.isdecimal():
        return min(float(retry_after), LONGEST_WAIT_SECONDS)
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    wait = (until.astimezone(UTC) - datetime.now(UTC)).total_seconds()
    return min(max(wait, 0.0), LONGEST_WAIT_SECONDS)
