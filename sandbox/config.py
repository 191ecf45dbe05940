"""Settings of one sandbox process, from the command line and SANDBOX_* variables."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DEFAULT_RECEIPTS = (0.3, 0.8, 1.5)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All times are in seconds.

    `wait_scale` multiplies Evolution's own waits (connect 2 s, create with QR 5 s, QR life 45 s);
    `retry_scale` multiplies its webhook retry delays. `pair_after=None` pairs only on request.
    """

    port: int = 0
    host: str = "127.0.0.1"
    api_key: str = "sandbox"
    state: Path | None = None
    pair_after: float | None = None
    receipts_after: tuple[float, ...] = DEFAULT_RECEIPTS
    wait_scale: float = 1.0
    retry_scale: float = 1.0
    qr_limit: int = 30
    expose_token: bool = False

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def read_config(argv: Sequence[str] | None = None) -> Config:
    """Read the command line; each option falls back to SANDBOX_<OPTION>, then to its default."""
    options = _parser().parse_args(argv)
    return Config(**vars(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sandbox", description=__doc__)
    add = parser.add_argument
    add("--port", type=int, default=_env("PORT", "0"), help="0 picks a free port")
    add("--host", default=_env("HOST", Config.host))
    add("--state", type=Path, default=_env("STATE", None), help="directory; absent = in memory")
    add("--api-key", default=_env("API_KEY", Config.api_key), help="better given as SANDBOX_API_KEY")
    add("--pair-after", type=float, default=_env("PAIR_AFTER", None), help="seconds of connecting")
    add("--receipts-after", type=_seconds, default=_env("RECEIPTS_AFTER", "0.3,0.8,1.5"))
    add("--wait-scale", type=float, default=_env("WAIT_SCALE", "1"))
    add("--retry-scale", type=float, default=_env("RETRY_SCALE", "1"))
    add("--qr-limit", type=int, default=_env("QR_LIMIT", "30"), help="as QRCODE_LIMIT of the real server")
    add("--expose-token", action="store_true", default=_env("EXPOSE_TOKEN", "") == "true")
    return parser


def _env(name: str, default: str | None) -> str | None:
    return os.environ.get(f"SANDBOX_{name}", default)


def _seconds(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(",") if part.strip())
