"""The schema of Meta's own specification, corrected (tests/golden/meta), over the bodies that we send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

_SCHEMA = Path(__file__).parents[1] / "golden" / "meta" / "messages.schema.json"
_VALIDATOR = Draft202012Validator(json.loads(_SCHEMA.read_text()))


def complaints(body: Any) -> list[str]:
    """What the specification says against a body of POST /{phone-number-id}/messages."""
    return [error.message for error in _VALIDATOR.iter_errors(body)]
