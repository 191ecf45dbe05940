"""Small files that are whole or absent, whenever the launcher is killed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file; empty when there is no file."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace the file in one step; only its owner may read it."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(json.dumps(content, indent=2) + "\n")
    unfinished.replace(path)
