"""`python -m sandbox`: run the emulator."""

from __future__ import annotations

from sandbox.config import read_config
from sandbox.server import serve


def announce(url: str) -> None:
    print(f"sandbox ready on {url}", flush=True)


if __name__ == "__main__":
    serve(read_config(), announce)
