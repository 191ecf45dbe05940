"""From a request to an order, and from an accepted message to the answer: the same for every way a request comes in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from rest_framework.exceptions import APIException, ValidationError

from accounts.models import ApiKey
from messaging import forecasting
from messaging.accepting import Accepted, Idempotency, Order
from messaging.api.serializers import MOST_AT_ONCE, OWN_CONTENT, SUBMISSION, shown
from messaging.composing import Submission
from messaging.forecasting import Forecast
from messaging.models import Message, Status

VISIBLE = re.compile(r"[\x21-\x7e]+")
LONGEST_KEY = 255
LONGEST_BATCH_KEY = LONGEST_KEY - len(f" {MOST_AT_ONCE - 1}")


def order_of(*, key: ApiKey, body: Any, idempotency_key: str | None) -> Order:
    """What a request asks for. `idempotency_key` is the header as sent. Raises DRF's ValidationError."""
    submission = _submission(SUBMISSION.run_validation(body))
    return Order(key, submission, _idempotency(key, body, idempotency_key))


def answer_of(accepted: Accepted) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and the headers that say 202."""
    message = accepted.message
    headers = {"Location": f"{_messages_url()}/{message.pk}"}
    if accepted.replayed:
        headers["Idempotent-Replayed"] = "true"
    return shown(message, accepted.forecast or forecast_of(message)), headers


def batch_orders(
    *, key: ApiKey, bodies: Sequence[Mapping[str, Any]], idempotency_key: str | None
) -> list[Order | APIException]:
    """What each item of a batch asks for, or what is wrong with it. Raises DRF's ValidationError for a bad
    `idempotency_key`.

    Each item has the batch's key and its place, with a blank between: no key that a client can send has one.
    """
    if idempotency_key is not None:
        _check_key(idempotency_key, most=LONGEST_BATCH_KEY)
    return [
        _item(key, body, idempotency_key and f"{idempotency_key} {place}")
        for place, body in enumerate(bodies)
    ]


def _item(key: ApiKey, body: Mapping[str, Any], idempotency_key: str | None) -> Order | APIException:
    try:
        submission = _submission(SUBMISSION.run_validation(body))
    except APIException as error:
        return error
    once = Idempotency.of(idempotency_key, project_id=key.project_id, body=body) if idempotency_key else None
    return Order(key, submission, once)


@cache
def _messages_url() -> str:
    return reverse("api:messages")


def forecast_of(message: Message) -> Forecast | None:
    """When a message will go out; None when it does not wait any more."""
    if message.status != Status.QUEUED:
        return None
    instance = message.instance
    return forecasting.for_waiting(message, instance=instance, lane=instance.lane, now=timezone.now())


def _submission(fields: Mapping[str, Any]) -> Submission:
    own = {name: fields[name] for name in OWN_CONTENT if name in fields}
    rest = {name: value for name, value in fields.items() if name not in (*OWN_CONTENT, "content")}
    return Submission(**rest, content=fields.get("content") or own or None)


def _idempotency(key: ApiKey, body: Any, given: str | None) -> Idempotency | None:
    if given is None:
        return None
    _check_key(given, most=LONGEST_KEY)
    return Idempotency.of(given, project_id=key.project_id, body=body)


def _check_key(given: str, *, most: int) -> None:
    if not VISIBLE.fullmatch(given) or len(given) > most:
        fault = _("Must be 1 to %(most)s visible ASCII characters.") % {"most": most}
        raise ValidationError({"Idempotency-Key": [fault]})
