"""Accepting a message: checked, then written down whole. From then on the row is the job.

What is only looked up (template, instance, opt-in) is read first; then one statement writes (messaging/storing.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.utils.translation import gettext as _

from accounts.models import ApiKey
from messaging import forecasting, numbers, opt_ins, rendering
from messaging.choosing import choose_instance
from messaging.content import validate_content
from messaging.fitting import assert_fits
from messaging.forecasting import Forecast
from messaging.models import Category, IdempotencyKey, Message, Template, TemplateVersion
from messaging.storing import TakenKey, store
from pilot import sql
from pilot.celery import wake_on_commit
from pilot.errors import PilotError
from pilot.ids import new_id


class UnknownTemplate(PilotError):
    """The project has no active template of that name."""

    code = "unknown_template"


class DeadlinePassed(PilotError):
    """The wanted deadline is not in the future."""

    code = "deadline_passed"


class WouldBeLate(PilotError):
    """The request asked to be refused when its deadline cannot be met."""

    code = "would_be_late"
    status = 409


class KeyReused(PilotError):
    """The Idempotency-Key came before with another body."""

    code = "idempotency_key_reused"
    status = 422


class StillRunning(PilotError):
    """A request with this Idempotency-Key is being accepted at this moment."""

    code = "still_running"
    status = 409


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What somebody wants sent: a `template` with its `variables`, or a `content` of their own.

    `to` is a number as people write it. `category` counts for own content only; a template has its own.
    """

    to: str
    template: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] | None = None
    category: str = Category.UTILITY
    instance: str = ""
    urgent: bool = False
    deliver_until: datetime | None = None
    skip_opt_in_validation: bool = False
    refuse_if_late: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A client's key, and the digest of the request that it stands for."""

    key: str
    digest: str

    @classmethod
    def of(cls, key: str, *, project_id: int, body: Any) -> Idempotency:
        """`body` is the request as parsed from JSON; the order of its fields does not matter."""
        canonical = json.dumps([project_id, body], sort_keys=True, separators=(",", ":"))
        return cls(key, hashlib.sha256(canonical.encode()).hexdigest())


class Accepted(NamedTuple):
    """`replayed` says that the message had been accepted by an earlier request with the same Idempotency-Key."""

    message: Message
    replayed: bool
    forecast: Forecast | None = None


def submit(
    *, key: ApiKey, submission: Submission, now: datetime, idempotency: Idempotency | None = None
) -> Accepted:
    """Accepts a message for the project and environment of `key`, or refuses it with a PilotError.

    `key.project.tenant` must be loaded. Wakes the instance once all is committed. The message is due at once and
    not after its deadline: that of its category (settings.DEADLINES), or `deliver_until` where that is earlier.
    """
    if idempotency and (earlier := _earlier(key, idempotency)):
        return Accepted(earlier, replayed=True)
    message = _compose(key, submission, now)
    forecast = _forecast(message, submission, now)
    if _store(message, idempotency):
        return Accepted(message, replayed=False, forecast=forecast)
    assert idempotency is not None
    return Accepted(_winner(key, idempotency), replayed=True)


# --- putting a message together ---------------------------------------------------------------------------


def _compose(key: ApiKey, submission: Submission, now: datetime) -> Message:
    number = numbers.normalise(submission.to)
    version = _version(key, submission.template) if submission.template else None
    content = _content(version, submission)
    category = version.template.category if version else submission.category
    instance = choose_instance(project=key.project, name=submission.instance)
    assert_fits(content, instance=instance)
    opt_ins.assert_destination_authorized(
        tenant=key.project.tenant,
        number=number,
        skip=submission.skip_opt_in_validation,
        scopes=key.scopes,
    )
    return Message(
        id=new_id(),
        tenant=key.project.tenant,
        project=key.project,
        environment=key.environment,
        instance=instance,
        template_version=version,
        to=number,
        category=category,
        urgent=submission.urgent,
        body_override=version is None,
        variables=submission.variables,
        content=content,
        metadata=submission.metadata,
        created_at=now,
        deliver_until=_deadline(category, submission.deliver_until, now),
    )


def _forecast(message: Message, submission: Submission, now: datetime) -> Forecast:
    instance = message.instance
    forecast = forecasting.for_new(message, instance=instance, lane=instance.lane, now=now)
    if submission.refuse_if_late and forecast.late(message.deliver_until):
        raise WouldBeLate(_why_late(forecast), fields={"refuse_if_late": [_("It was not accepted.")]})
    message.expected_at = forecast.expected_at
    return forecast


def _why_late(forecast: Forecast) -> str:
    if forecast.expected_at is None:
        return _("Nobody can say when it would go out: the instance is not connected.")
    return _("It would go out at %(at)s, after its deadline: %(ahead)s messages go before it.") % {
        "at": forecast.expected_at.isoformat(timespec="seconds"),
        "ahead": forecast.position - 1,
    }


_VERSION = """
SELECT v.id, v.number, v.content, t.id, t.category FROM messaging_template t
JOIN messaging_templateversion v ON v.id = t.current_version_id
WHERE t.project_id = %s AND t.name = %s AND t.status = 'active'
"""


def _version(key: ApiKey, name: str) -> TemplateVersion:
    for version_id, number, content, template_id, category in sql.fetch(_VERSION, [key.project_id, name]):
        template = Template(id=template_id, project_id=key.project_id, name=name, category=category)
        return TemplateVersion(id=version_id, number=number, content=json.loads(content), template=template)
    raise UnknownTemplate(
        _("There is no active template of that name."),
        fields={"template": [_("No template is called “%(name)s”.") % {"name": name}]},
    )


def _content(version: TemplateVersion | None, submission: Submission) -> Mapping[str, Any]:
    if version:
        return rendering.render(version.content, submission.variables)
    content = submission.content or {}
    validate_content(content)
    return content


def _deadline(category: str, wanted: datetime | None, now: datetime) -> datetime:
    latest = now + settings.DEADLINES[category]
    if wanted is None:
        return latest
    if wanted <= now:
        raise DeadlinePassed(
            _("The deadline has passed."), fields={"deliver_until": [_("Must be in the future.")]}
        )
    return min(wanted, latest)


# --- writing it down --------------------------------------------------------------------------------------


def _store(message: Message, idempotency: Idempotency | None) -> bool:
    """False, and nothing written, when another request has the Idempotency-Key."""
    once = TakenKey(idempotency.key, idempotency.digest) if idempotency else None
    detail = {"instance": message.instance.name, "deliver_until": message.deliver_until.isoformat()}
    if not store(message, detail=detail, once=once):
        return False
    wake_on_commit(message.instance_id)
    return True


def _winner(key: ApiKey, idempotency: Idempotency) -> Message:
    if earlier := _earlier(key, idempotency):
        return earlier
    raise StillRunning(_("A request with this Idempotency-Key is still running; ask again in a moment."))


def _earlier(key: ApiKey, idempotency: Idempotency) -> Message | None:
    """The message that the key stands for. Raises KeyReused when that was another request."""
    known = IdempotencyKey.objects.filter(
        tenant_id=key.tenant_id, environment=key.environment, key=idempotency.key
    ).values_list("message_id", "body_digest")
    for message_id, digest in known:
        if digest != idempotency.digest:
            raise KeyReused(
                _("This Idempotency-Key was used for another request."),
                fields={"Idempotency-Key": [_("Use a new key for a new message.")]},
            )
        related = ("instance__lane", "instance__tenant", "template_version__template")
        return Message.objects.select_related(*related).get(pk=message_id)
    return None
