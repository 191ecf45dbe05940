"""The subset of the `jsonschema` npm package Evolution validates with, including its wording."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Schema = dict[str, Any]

TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": lambda value: _is_number(value),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def violations(value: Any, schema: Schema) -> list[str]:
    """Every violation, worded as Evolution words it: the schema's description when it has one, else the
    library's text with the `instance.` prefix taken off."""
    return [
        part.get("description") or text.replace("instance.", "", 1)
        for text, part in _walk(value, schema, "instance")
    ]


def _walk(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    for keyword, rule in schema.items():
        if check := CHECKS.get(keyword):
            yield from check(value, rule, path, schema)


def _type(value: Any, rule: str, path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    if not TYPES[rule](value):
        yield f"{path} is not of a type(s) {rule}", schema


def _enum(value: Any, rule: list[str], path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    if value not in rule:
        yield f"{path} is not one of enum values: {','.join(rule)}", schema


def _pattern(value: Any, rule: str, path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    if isinstance(value, str) and not re.search(rule, value):
        yield f"{path} does not match pattern {json.dumps(rule)}", schema


def _min_items(value: Any, rule: int, path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    if isinstance(value, list) and len(value) < rule:
        yield f"{path} does not meet minimum length of {rule}", schema


def _unique_items(value: Any, _rule: bool, path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    if isinstance(value, list) and len({json.dumps(item) for item in value}) < len(value):
        yield f"{path} contains duplicate item", schema


def _items(value: Any, rule: Schema, path: str, _schema: Schema) -> Iterator[tuple[str, Schema]]:
    for index, item in enumerate(value if isinstance(value, list) else []):
        yield from _walk(item, rule, f"{path}[{index}]")


def _properties(value: Any, rule: Schema, path: str, _schema: Schema) -> Iterator[tuple[str, Schema]]:
    for name, part in rule.items():
        if isinstance(value, dict) and name in value:
            yield from _walk(value[name], part, f"{path}.{name}")


def _required(value: Any, rule: list[str], path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    for name in rule:
        if isinstance(value, dict) and name not in value:
            yield f'{path} requires property "{name}"', schema


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


CHECKS: dict[str, Callable[[Any, Any, str, Schema], Iterator[tuple[str, Schema]]]] = {
    "type": _type,
    "enum": _enum,
    "pattern": _pattern,
    "minItems": _min_items,
    "uniqueItems": _unique_items,
    "items": _items,
    "properties": _properties,
    "required": _required,
}
