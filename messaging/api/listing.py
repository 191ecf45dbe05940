"""Which messages a key may see, and the pages of them that a request asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from accounts.models import ApiKey
from messaging import addresses, numbers
from messaging.api.serializers import LONGEST_NAME, MessageFilter, shown
from messaging.models import Message, MessageLabel
from pilot.api import bad_cursor, page_of, validated

METADATA = re.compile(rf"metadata\[(.{{1,{LONGEST_NAME}}})\]")
FILTERS = {
    "status": "status",
    "template": "template_version__template__name",
    "instance": "instance__name",
    "created_after": "created_at__gte",
    "created_before": "created_at__lt",
}


def messages_of(key: ApiKey) -> QuerySet[Message]:
    """The messages that a key may see, ready to be shown."""
    return (
        Message.objects.filter(
            tenant_id=key.tenant_id, environment=key.environment, project_id=key.project_id
        )
        .select_related("instance__lane", "instance__tenant", "template_version__template")
        .defer("content", "variables", "instance__credentials", "instance__hook_token")
        .defer("template_version__content")
    )


def messages_page(key: ApiKey, query: Mapping[str, str]) -> dict[str, Any]:
    """The page that a query string asks for, newest first. Raises DRF's ValidationError."""
    labels = {match[1]: value for name, value in query.items() if (match := METADATA.fullmatch(name))}
    rest = {name: value for name, value in query.items() if not METADATA.fullmatch(name)}
    wanted = validated(MessageFilter, rest)
    if "reference" in wanted:
        labels[""] = wanted["reference"]
    messages = _labelled(_filtered(messages_of(key), wanted), labels, key)
    rows = _after(messages, wanted.get("cursor"), key).order_by("-created_at", "-id")
    page, next_cursor = page_of(rows, limit=wanted["limit"], place=lambda message: message.pk)
    return {"messages": [shown(message) for message in page], "next_cursor": next_cursor}


def _filtered(messages: QuerySet[Message], wanted: Mapping[str, Any]) -> QuerySet[Message]:
    messages = messages.filter(**{FILTERS[name]: value for name, value in wanted.items() if name in FILTERS})
    if "to" in wanted:
        messages = messages.filter(to__in=_addresses(wanted["to"]))
    return messages


def _labelled(messages: QuerySet[Message], labels: Mapping[str, str], key: ApiKey) -> QuerySet[Message]:
    for name, value in labels.items():
        label = MessageLabel.objects.filter(
            project_id=key.project_id, name=name, value=value, message_id=OuterRef("pk")
        )
        messages = messages.filter(Exists(label))
    return messages


def _after(messages: QuerySet[Message], cursor: str | None, key: ApiKey) -> QuerySet[Message]:
    """What follows the message that `cursor` names. Rows that come in meanwhile are newer, so nothing shifts."""
    if cursor is None:
        return messages
    last = messages_of(key).filter(pk=cursor).values_list("created_at", flat=True).first()
    if last is None:
        raise bad_cursor()
    return messages.filter(created_at__lte=last).exclude(created_at=last, pk__gte=cursor)


def _addresses(written: str) -> tuple[str, ...]:
    """The forms of a number, or the id of a person as it is."""
    if any(
        addresses.is_id(written, provider=provider) for provider in addresses.IDS
    ) and not numbers.is_valid(written):
        return (written,)
    return numbers.variants(numbers.normalise(written))
