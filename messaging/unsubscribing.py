"""People who write that they want to be left alone: believed at once, told once, asked where it is not sure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from accounts.models import Environment, Project, zone_of
from messaging import intents, opt_ins
from messaging.intents import Intent
from messaging.models import Category, Message, ReceivedMessage
from messaging.storing import Entry, store
from pilot.celery import wake_on_commit
from pilot.ids import new_id

SOURCE = "opt_out"  # of our own answers: the only messages that reach someone who opted out


def take_in(received: Sequence[ReceivedMessage]) -> None:
    """Acts on messages that were stored just now, in the same transaction. Repeated news must not come here again.

    In the order of people, and the answers together: so two batches, and whoever accepts, wait for each other but do
    not deadlock.
    """
    now = timezone.now()
    people = sorted(received, key=lambda each: (each.tenant_id, each.sender_number))
    answers = [answer for message in people if (answer := _answer(message, now))]
    if not answers:
        return
    stored = store(answers)
    wake_on_commit(*{each.message.instance_id for each in answers if each.message.pk in stored})


def _answer(message: ReceivedMessage, now: datetime) -> Entry | None:
    """What the person is to hear, if anything."""
    intent = intents.intent_of(message.text) if message.sender_number else None
    if intent == Intent.CERTAIN:
        return _believe(message, now)
    return _ask(message, now) if intent == Intent.PROBABLE else None


def _believe(message: ReceivedMessage, now: datetime) -> Entry | None:
    tenant, number = message.instance.tenant, message.sender_number
    if opt_ins.opted_out(tenant_id=tenant.pk, number=number):
        return None  # told before
    opt_ins.revoke(tenant=tenant, number=number, source="whatsapp", now=now)
    with translation.override(settings.LANGUAGE_CODE):
        text = _(
            "Done: you will not get any more messages from us. If you change your mind, just write to us."
        )
    key = f"{SOURCE} {message.instance_id} {message.provider_message_id}"
    return _reply(message, {"text": text}, key=key, now=now)


def _ask(message: ReceivedMessage, now: datetime) -> Entry | None:
    """At most once a day."""
    tenant, number = message.instance.tenant, message.sender_number
    if opt_ins.opted_out(tenant_id=tenant.pk, number=number):
        return None
    with translation.override(settings.LANGUAGE_CODE):
        text = _("Do you want to stop getting messages from us?")
    labels = {"yes": intents.YES_STOP, "no": intents.NO_STAY}
    buttons = [
        {"kind": "reply", "label": label, "value": f"{SOURCE}:{value}"} for value, label in labels.items()
    ]
    today = now.astimezone(zone_of(tenant)).date()
    return _reply(message, {"text": text, "buttons": buttons}, key=f"{SOURCE} {number} {today}", now=now)


def _reply(message: ReceivedMessage, content: dict[str, object], *, key: str, now: datetime) -> Entry | None:
    """One message from the instance that was written to, whatever is repeated: its key has a blank, as no client's."""
    instance = message.instance
    project = _project(instance.pk, instance.tenant_id)
    if project is None:
        return None
    reply = Message(
        id=new_id(),
        tenant=instance.tenant,
        project=project,
        environment=Environment.LIVE,
        instance=instance,
        source=SOURCE,
        to=message.sender_number,
        recipient_id=message.sender_id,
        category=Category.SESSION,
        urgent=True,
        body_override=True,
        content=content,
        created_at=now,
        deliver_until=now + settings.DEADLINES[Category.SESSION],
    )
    return Entry(reply, {"instance": instance.name}, key=key, digest=key)


def _project(instance_id: int, tenant_id: int) -> Project | None:
    """The one that the instance is the default of, else the tenant's first."""
    projects = Project.objects.filter(tenant_id=tenant_id)
    return projects.filter(default_instance__instance=instance_id).first() or projects.order_by("pk").first()
