"""Whether an instance can send a content: each provider takes some kinds, and has limits of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from instances import meta_templates
from instances.models import Instance
from instances.providers import provider_for
from messaging.content import InvalidContent, kind_of
from messaging.outbound import outbound


class UnsupportedContent(InvalidContent):
    """The instance's provider has no such kind of message."""

    code = "unsupported_content"


def assert_fits(content: Mapping[str, Any], *, instance: Instance) -> None:
    """Raises UnsupportedContent or InvalidContent, naming the part, unless the instance's provider takes it."""
    provider, kind = provider_for(instance), kind_of(content)
    if kind not in provider.kinds:
        sentence = _("The instance “%(name)s” cannot send this kind of message.") % {"name": instance.name}
        raise UnsupportedContent(sentence, fields={"content": {"type": [sentence]}})
    faults = dict(provider.faults(outbound(id="", to="", recipient_id="", content=content)))
    if kind == "template" and "templates" in provider.supports:
        faults |= meta_templates.faults(instance, content)
    if faults:
        fields = {name: [sentence] for name, sentence in faults.items()}
        raise InvalidContent(_("The content cannot be sent."), fields=fields)
