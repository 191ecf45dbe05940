"""From a request to an order, and from an accepted message to the answer: the same for every way a request comes in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError

from accounts.models import ApiKey
from messaging import forecasting
from messaging.accepting import Accepted, Idempotency, Order
from messaging.api.serializers import OWN_CONTENT, SUBMISSION, shown
from messaging.composing import Submission
from messaging.forecasting import Forecast
from messaging.models import Message, Status

IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def order_of(*, key: ApiKey, body: Any, idempotency_key: str | None) -> Order:
    """What a request asks for. `idempotency_key` is the header as sent. Raises DRF's ValidationError."""
    submission = _submission(SUBMISSION.run_validation(body))
    return Order(key, submission, _idempotency(key, body, idempotency_key))


def answer_of(accepted: Accepted) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and the headers that say 202."""
    message = accepted.message
    headers = {"Location": reverse("api:message", args=[message.pk])}
    if accepted.replayed:
        headers["Idempotent-Replayed"] = "true"
    return shown(message, accepted.forecast or forecast_of(message)), headers


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
    if not IDEMPOTENCY_KEY.fullmatch(given):
        fault = _("Must be 1 to 255 visible ASCII characters.")
        raise ValidationError({"Idempotency-Key": [fault]})
    return Idempotency.of(given, project_id=key.project_id, body=body)
