"""Templates: {{variables}} become values, strictly: none may be missing, none may be left over."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.utils.translation import gettext as _

from instances.providers.base import Button
from messaging.content import InvalidContent, validate_content
from messaging.fields import CONTROL
from pilot.errors import PilotError

Content = dict[str, Any]

VARIABLE = re.compile(r"\{\{\s*([A-Za-z0-9_][A-Za-z0-9_.]{0,40})\s*\}\}", re.ASCII)
BRACES = re.compile(r"\{\{|\}\}")
JSON_TEMPLATE = re.compile(r'\s*\{\s*["}]')  # a text may begin with {{name}}, never with {"
# What a button's value may turn out to be, where a variable decides it.
SAMPLES = {"reply": "1", "url": "https://example.com/1", "call": "+5511999990000", "copy": "1"}


class InvalidVariables(PilotError):
    """Variables that are missing, unknown to the template or not printable. `fields["variables"]` names each."""

    code = "invalid_variables"


def parse_template(source: str) -> Content:
    """The content of a template as its author wrote it: a plain text, or JSON for a title, footer or buttons.

    Raises InvalidContent.
    """
    content: Any = _parse_json(source) if JSON_TEMPLATE.match(source) else {"text": source}
    validate_template(content)
    return content


def variables_of(content: Any) -> list[str]:
    """The names that the content's strings mention, sorted."""
    return sorted({name for text in _strings(content) for name in VARIABLE.findall(text)})


def render(content: Mapping[str, Any], variables: Mapping[str, Any]) -> Content:
    """The content with every variable replaced by its value. Values are not expanded again.

    Raises InvalidVariables when one is missing, unknown, or neither a text nor a number;
    InvalidContent when the result cannot be sent.
    """
    values = _checked(variables, wanted=variables_of(content))
    rendered = _fill(content, values)
    validate_content(rendered)
    return rendered


def buttons_of(content: Mapping[str, Any]) -> list[Button]:
    """The content's buttons as a provider takes them."""
    return [Button(**button) for button in content.get("buttons", ())]


def validate_template(content: Any) -> None:
    """Raises InvalidContent unless some values of its variables make a message of it."""
    if any(BRACES.search(VARIABLE.sub("", text)) for text in _strings(content)):
        raise InvalidContent(
            _("Write variables as {{name}}."),
            fields={"text": [_("Names have letters, digits, points and underscores, at most 41.")]},
        )
    short_values = {name: str(index) for index, name in enumerate(variables_of(content))}
    validate_content(_fill(_with_sample_values(content), short_values))


def _parse_json(source: str) -> Any:
    try:
        return json.loads(source)
    except (ValueError, RecursionError):
        fault = _("This looks like JSON, but is not valid JSON.")
        raise InvalidContent(_("The content cannot be sent."), fields={"text": [fault]}) from None


def _checked(variables: Mapping[str, Any], *, wanted: list[str]) -> dict[str, str]:
    faults = {name: _("The template needs this variable.") for name in wanted if name not in variables}
    for name, value in variables.items():
        fault = _value_fault(value) if name in wanted else _("The template has no such variable.")
        if fault:
            faults[name] = fault
    if faults:
        raise InvalidVariables(
            _("Some variables are wrong: %(names)s.") % {"names": ", ".join(sorted(faults))},
            fields={"variables": {name: [fault] for name, fault in faults.items()}},
        )
    return {name: str(value) for name, value in variables.items()}


def _value_fault(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return _("Must be a text or a number.")
    if isinstance(value, float) and not math.isfinite(value):
        return _("Must be a finite number.")
    if isinstance(value, str) and CONTROL.search(value):
        return _("Must not contain control characters.")
    return ""


def _strings(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | dict):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _strings(part)


def _fill(content: Any, values: Mapping[str, str]) -> Any:
    if isinstance(content, str):
        return VARIABLE.sub(lambda match: values[match[1]], content)
    if isinstance(content, list):
        return [_fill(part, values) for part in content]
    if isinstance(content, dict):
        return {name: _fill(part, values) for name, part in content.items()}
    return content


def _with_sample_values(content: Any) -> Any:
    """The same content, with a plausible value on each button whose value a variable decides."""
    if not isinstance(content, dict) or not isinstance(content.get("buttons"), list):
        return content
    return content | {"buttons": [_with_sample_value(button) for button in content["buttons"]]}


def _with_sample_value(button: Any) -> Any:
    if not isinstance(button, dict) or not VARIABLE.search(str(button.get("value"))):
        return button
    return button | {"value": SAMPLES.get(str(button.get("kind")), "1")}
