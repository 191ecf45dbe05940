"""What a real Evolution API 2.3.7 answered and posted (tests/golden/evolution/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "golden" / "evolution"


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


EXCHANGES = _lines("http-2.3.7.jsonl")
DELIVERIES = _lines("webhooks-2.3.7.jsonl")
