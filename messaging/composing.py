"""Putting messages together: what was asked for becomes a row that can be stored, or a refusal. Writes nothing, but
for a tenant's simulator when it is first needed.

What the orders of a batch name (templates, instances, consents) is looked up with one statement for each kind, so that
accepting many at once costs each of them little.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from django.conf import settings
from django.utils.translation import gettext as _

from accounts.models import ApiKey, Environment
from instances.models import Instance
from messaging import addresses, forecasting, magic, numbers, opt_ins, rendering
from messaging.choosing import choose_instances, choose_simulators
from messaging.content import validate_content
from messaging.fitting import assert_fits
from messaging.forecasting import Forecast, Queue
from messaging.models import Category, Message, Template, TemplateVersion
from pilot import sql
from pilot.errors import PilotError
from pilot.ids import new_id

T = TypeVar("T")


class UnknownTemplate(PilotError):
    """The project has no active template of that name."""

    code = "unknown_template"


class DeadlinePassed(PilotError):
    """The wanted deadline is not in the future."""

    code = "deadline_passed"


class BadSchedule(PilotError):
    """The wanted time is not in the future, or too far in it."""

    code = "bad_schedule"


class WouldBeLate(PilotError):
    """The request asked to be refused when its deadline cannot be met."""

    code = "would_be_late"
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
    scheduled_at: datetime | None = None
    deliver_until: datetime | None = None
    skip_opt_in_validation: bool = False
    refuse_if_late: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that may be stored, and when it would go out."""

    message: Message
    forecast: Forecast


def compose_all(wanted: Sequence[tuple[ApiKey, Submission]], *, now: datetime) -> list[Draft | PilotError]:
    """For each submission, in their order, a draft or why there is none. `key.project.tenant` must be loaded."""
    composer = _Composer(wanted, now)
    return [composer.attempt(key, submission) for key, submission in wanted]


class _Composer:
    """What was looked up for one batch, and what the batch itself adds to the queues."""

    def __init__(self, wanted: Sequence[tuple[ApiKey, Submission]], now: datetime) -> None:
        self._now = now
        self._numbers = {each.to: _number(each.to) for _key, each in wanted}
        self._versions = _versions({(key.project_id, each.template) for key, each in wanted if each.template})
        self._instances = choose_instances([(key.project, each.instance) for key, each in wanted])
        self._simulators = choose_simulators(
            {
                key.project
                for key, each in wanted
                if magic.is_magic(self._numbers[each.to]) and key.environment == Environment.TEST
            },
            now=now,
        )
        self._consents = opt_ins.consents_of(
            {
                (key.tenant_id, number)
                for key, each in wanted
                if isinstance(number := self._numbers[each.to], str)
            }
        )
        self._added: dict[int, Counter[Queue]] = {}

    def attempt(self, key: ApiKey, submission: Submission) -> Draft | PilotError:
        try:
            return self._compose(key, submission)
        except PilotError as error:
            return error

    def _compose(self, key: ApiKey, submission: Submission) -> Draft:
        to = self._address(key, submission)
        version = self._version(key, submission.template) if submission.template else None
        content = _content(version, submission)
        category = version.template.category if version else submission.category
        instance = self._instance(key, submission, to)
        assert_fits(content, instance=instance)
        if not addresses.is_id(to, provider=instance.provider):
            opt_ins.assert_destination_authorized(
                consents=[*self._consents.get((key.tenant_id, to), ()), *magic.consents(to, self._now)],
                skip=submission.skip_opt_in_validation,
                scopes=key.scopes,
            )
        scheduled_at = _schedule(submission.scheduled_at, self._now)
        message = Message(
            id=new_id(),
            tenant=key.project.tenant,
            project=key.project,
            environment=key.environment,
            instance=instance,
            template_version=version,
            to=to,
            category=category,
            urgent=submission.urgent,
            body_override=version is None,
            variables=submission.variables,
            content=content,
            metadata=submission.metadata,
            reference=submission.reference,
            created_at=self._now,
            scheduled_at=scheduled_at,
            next_attempt_at=scheduled_at,
            deliver_until=_deadline(category, submission.deliver_until, scheduled_at or self._now),
        )
        magic.prepare(message)
        return Draft(message, self._forecast(message, instance, submission))

    def _address(self, key: ApiKey, submission: Submission) -> str:
        """E.164, or the id of a person where the instance's provider has such."""
        number, instance = self._numbers[submission.to], self._instances[key.project_id, submission.instance]
        if isinstance(instance, Instance) and not magic.is_magic(number):
            if addresses.is_id(submission.to, provider=instance.provider):
                return submission.to
            if addresses.needs_id(instance.provider):
                sentence = _("Write the person's id at the provider, as its webhooks give it.")
                raise numbers.InvalidNumber(sentence, fields={"to": [sentence]})
        return _given(number)

    def _instance(self, key: ApiKey, submission: Submission, to: str) -> Instance:
        """For a magic number the tenant's simulator, whatever was asked for."""
        magic.assert_allowed(to, environment=key.environment)
        chosen = self._instances[key.project_id, submission.instance]
        if not magic.is_magic(to):
            instance = _given(chosen)
            magic.assert_may_use(instance, environment=key.environment)
            return instance
        if submission.instance:
            _given(chosen)
        return self._simulators[key.tenant_id]

    def _version(self, key: ApiKey, name: str) -> TemplateVersion:
        if version := self._versions.get((key.project_id, name)):
            return version
        raise UnknownTemplate(
            _("There is no active template of that name."),
            fields={"template": [_("No template is called “%(name)s”.") % {"name": name}]},
        )

    def _forecast(self, message: Message, instance: Instance, submission: Submission) -> Forecast:
        added = self._added.setdefault(instance.pk, Counter())
        forecast = forecasting.for_new(
            message, instance=instance, lane=instance.lane, added=added, now=self._now
        )
        if submission.refuse_if_late and forecast.late(message.deliver_until):
            raise WouldBeLate(_why_late(forecast), fields={"refuse_if_late": [_("It was not accepted.")]})
        if not message.scheduled_at:
            added[forecasting.queue_of(message)] += 1
        message.expected_at = forecast.expected_at
        return forecast


def _number(raw: str) -> str | PilotError:
    try:
        return numbers.normalise(raw)
    except numbers.InvalidNumber as error:
        return error


def _given(found: T | PilotError) -> T:
    if isinstance(found, PilotError):
        raise found
    return found


_VERSIONS = """
SELECT t.project_id, t.name, v.id, v.number, v.content, t.id, t.category
FROM unnest(%s::bigint[], %s::text[]) AS wanted (project_id, name)
JOIN messaging_template t ON t.project_id = wanted.project_id AND t.name = wanted.name AND t.status = 'active'
JOIN messaging_templateversion v ON v.id = t.current_version_id
"""


def _versions(wanted: Collection[tuple[int, str]]) -> dict[tuple[int, str], TemplateVersion]:
    """The current versions of active templates, by (project, name)."""
    if not wanted:
        return {}
    found = {}
    for project_id, name, version_id, number, content, template_id, category in sql.fetch(
        _VERSIONS, sql.transposed(wanted)
    ):
        template = Template(id=template_id, project_id=project_id, name=name, category=category)
        found[project_id, name] = TemplateVersion(
            id=version_id, number=number, content=json.loads(content), template=template
        )
    return found


def _content(version: TemplateVersion | None, submission: Submission) -> Mapping[str, Any]:
    if version:
        return rendering.render(version.content, submission.variables)
    content = submission.content or {}
    validate_content(content)
    return content


def _schedule(wanted: datetime | None, now: datetime) -> datetime | None:
    if wanted is None or now < wanted <= now + settings.SCHEDULE_AHEAD:
        return wanted
    days = settings.SCHEDULE_AHEAD.days
    raise BadSchedule(
        _("The message cannot be scheduled for then."),
        fields={"scheduled_at": [_("Must be in the future, by at most %(days)s days.") % {"days": days}]},
    )


def _deadline(category: str, wanted: datetime | None, due: datetime) -> datetime:
    """`due` is when the message may first go out."""
    latest = due + settings.DEADLINES[category]
    if wanted is None:
        return latest
    if wanted <= due:
        raise DeadlinePassed(
            _("The deadline has passed."),
            fields={"deliver_until": [_("Must be in the future, and after the time it is scheduled for.")]},
        )
    return min(wanted, latest)


def _why_late(forecast: Forecast) -> str:
    if forecast.expected_at is None:
        return _("Nobody can say when it would go out: the instance is not connected.")
    return _("It would go out at %(at)s, after its deadline: %(ahead)s messages go before it.") % {
        "at": forecast.expected_at.isoformat(timespec="seconds"),
        "ahead": forecast.position - 1,
    }
