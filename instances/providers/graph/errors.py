"""What Graph's errors mean. Meta advises to go by the code: titles and HTTP statuses change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from instances.providers.base import (
    AMBIGUOUS,
    HELD_BACK,
    INSTANCE_REMOVED,
    MISCONFIGURED,
    NOT_ON_WHATSAPP,
    OPTED_OUT,
    REJECTED_PAYLOAD,
    TEMPLATE_REJECTED,
    THROTTLED,
    UNDELIVERABLE,
    UNREACHABLE,
    WINDOW_CLOSED,
    Answer,
    Outcome,
    ProviderError,
)

MINUTE, HOUR = 60.0, 3600.0
GONE_SUBCODE = 33  # with code 100: the object does not exist, or the token may not see it


class Verdict(NamedTuple):
    """A ProviderError's code and outcome, and for how many seconds at least to wait."""

    code: str
    outcome: Outcome
    wait: float | None = None


REFUSED = Verdict(REJECTED_PAYLOAD, Outcome.REJECTED)
WRONG_TEMPLATE = Verdict(TEMPLATE_REJECTED, Outcome.REJECTED)
SPARED = Verdict(HELD_BACK, Outcome.REJECTED)
BLOCKED = Verdict(MISCONFIGURED, Outcome.INSTANCE_DOWN)
GONE = Verdict(INSTANCE_REMOVED, Outcome.INSTANCE_DOWN)
BUSY = Verdict(UNREACHABLE, Outcome.RETRY)
SLOW_DOWN = Verdict(THROTTLED, Outcome.RETRY)
UNCLEAR = Verdict(AMBIGUOUS, Outcome.UNKNOWN)

# Retried are the codes by which Meta says that it did not take the message now; a person has to act on those that
# block the account, and its messages wait meanwhile. All others are final.
TABLE: Mapping[int, Verdict] = {
    0: BLOCKED,  # not authenticated
    1: BUSY,  # unknown error
    2: BUSY,  # service down or overloaded
    3: REFUSED,  # capability missing
    4: Verdict(THROTTLED, Outcome.RETRY, MINUTE),  # calls of the whole app
    10: BLOCKED,  # permission denied or removed
    33: GONE,
    100: REFUSED,  # invalid parameter
    190: BLOCKED,  # token expired or invalid
    **dict.fromkeys(range(200, 300), BLOCKED),  # permission missing
    368: BLOCKED,  # blocked for a violation of policies
    613: Verdict(THROTTLED, Outcome.RETRY, MINUTE),
    80007: Verdict(THROTTLED, Outcome.RETRY, MINUTE),  # calls for the business account
    130429: Verdict(THROTTLED, Outcome.RETRY, 1),  # throughput of the number
    130472: SPARED,  # the person is in an experiment of Meta's
    130497: REFUSED,  # country not allowed for the account
    131000: BUSY,  # something went wrong
    131005: BLOCKED,  # access denied
    131008: REFUSED,  # parameter missing
    131009: REFUSED,  # parameter value invalid
    131016: BUSY,  # service overloaded
    131021: REFUSED,  # recipient is the sender
    131026: Verdict(
        UNDELIVERABLE, Outcome.REJECTED
    ),  # not on WhatsApp, an old app, terms not accepted, or blocked us
    131030: Verdict(NOT_ON_WHATSAPP, Outcome.REJECTED),  # not in the list of a test number
    131031: BLOCKED,  # account locked
    131037: BLOCKED,  # display name not approved
    131042: BLOCKED,  # payment or eligibility
    131045: BLOCKED,  # registration
    131047: Verdict(WINDOW_CLOSED, Outcome.REJECTED),
    131048: Verdict(THROTTLED, Outcome.RETRY, HOUR),  # reported as spam too often
    131049: SPARED,  # an immediate retry fails again
    131050: Verdict(OPTED_OUT, Outcome.REJECTED),
    131051: REFUSED,  # message type not supported
    131052: REFUSED,  # the person's own file could not be downloaded
    131053: REFUSED,  # our file could not be taken
    131056: Verdict(THROTTLED, Outcome.RETRY, 6),  # too many to one person
    131057: Verdict(THROTTLED, Outcome.RETRY, MINUTE),  # throughput is being upgraded
    131062: REFUSED,  # business-scoped ids not allowed
    131063: SPARED,  # marketing templates disabled
    131064: Verdict(THROTTLED, Outcome.RETRY, HOUR),  # messaging limit
    **dict.fromkeys((132000, 132001, 132005, 132007, 132008, 132012, 132016, 132068), WRONG_TEMPLATE),
    132015: Verdict(THROTTLED, Outcome.RETRY, HOUR),  # template paused for its quality
    132069: Verdict(THROTTLED, Outcome.RETRY, HOUR),  # flow throttled
    133004: BUSY,
    **dict.fromkeys((133005, 133006, 133008, 133009, 133010, 133016), BLOCKED),  # registration
    134101: Verdict(THROTTLED, Outcome.RETRY, 10 * MINUTE),  # template still syncing
    134102: Verdict(THROTTLED, Outcome.RETRY, 10 * MINUTE),
    135000: REFUSED,
    137000: REFUSED,
}
# An answer that is no error of Graph's: a gateway's page, an empty body.
BY_STATUS: Mapping[int, Verdict] = {401: BLOCKED, 403: BLOCKED, 404: BLOCKED, 429: SLOW_DOWN}


def success(answer: Answer) -> Mapping[str, Any]:
    """The body of a 2xx answer. Raises ProviderError for any other."""
    if 200 <= answer.status < 300:
        return answer.body if isinstance(answer.body, dict) else {}
    raise failure(answer)


def failure(
    answer: Answer,
    *,
    table: Mapping[int, Verdict] = TABLE,
    subcodes: Mapping[int, Verdict] | None = None,
) -> ProviderError:
    """What an answer that is no success means. A subcode that is in `subcodes` says more than its code."""
    error = _error(answer)
    subcode = error.get("error_subcode")
    known = (subcodes or {}).get(subcode) if isinstance(subcode, int) else None
    verdict = known or _verdict(answer, error, table)
    detail = words(error) or f"HTTP {answer.status} without an explanation"
    wait = _retry_after(answer.headers) or verdict.wait
    return ProviderError(verdict.code, detail, outcome=verdict.outcome, retry_after=wait)


def words(error: Mapping[str, Any]) -> str:
    """An error of an answer or a webhook on one line: its code, and what Meta says most precisely."""
    data = error.get("error_data")
    details = data.get("details") if isinstance(data, dict) else data
    said = details or error.get("message") or error.get("title")
    code = error.get("code")
    return f"{code}: {said}" if said and code is not None else str(said or code or "")


def code_of(error: Mapping[str, Any]) -> int:
    """The number of an error; -1 for one that has none."""
    code = error.get("code")
    return code if isinstance(code, int) and not isinstance(code, bool) else -1


def _error(answer: Answer) -> Mapping[str, Any]:
    error = answer.body.get("error") if isinstance(answer.body, dict) else None
    return error if isinstance(error, dict) else {}


def _verdict(answer: Answer, error: Mapping[str, Any], table: Mapping[int, Verdict]) -> Verdict:
    code = code_of(error)
    if code == 100 and error.get("error_subcode") == GONE_SUBCODE:
        return GONE
    if code in table:
        return table[code]
    if answer.status in BY_STATUS:
        return BY_STATUS[answer.status]
    # A code that is not known here is still a no, unless the server itself failed: then it may have gone out.
    return REFUSED if error and answer.status < 500 else UNCLEAR


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds, else the minutes of the business usage header."""
    seconds = headers.get("retry-after", "")
    if seconds.isdecimal():
        return float(seconds)
    try:
        usage = json.loads(headers.get("x-business-use-case-usage", "{}"))
        minutes = [item["estimated_time_to_regain_access"] for items in usage.values() for item in items]
        return max(minutes) * MINUTE if minutes and max(minutes) > 0 else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
