"""Where things are: the checkout, the virtual environment, and the state that commands leave behind."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SERVICE_HOMES = Path("/var/lib/pilot-dev")


def digest() -> str:
    """A short name for this checkout, for directories shared by several."""
    return hashlib.sha256(str(REPO).encode()).hexdigest()[:12]


@functools.cache
def home() -> Path:
    """Where .venv and .pilot go: the checkout, or a cache directory when it is not ours to write."""
    if _writable(REPO):
        return REPO
    for base in _caches():
        candidate = base / "pilot" / digest()
        if _make(candidate):
            return candidate
    return _private_temporary()


def _writable(directory: Path) -> bool:
    # Entries too: after a run as root, .pilot has some that an ordinary user cannot use.
    parts = [directory, directory / ".venv", directory / ".pilot"]
    if not all(os.access(part, os.W_OK | os.X_OK) for part in parts if part.exists()):
        return False
    return all(os.access(entry, os.W_OK) for entry in (directory / ".pilot").glob("*"))


def _caches() -> list[Path]:
    named = os.environ.get("XDG_CACHE_HOME")
    return [Path(named)] if named else [Path.home() / ".cache"]


def _make(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def _private_temporary() -> Path:
    """For users without a home. Others may write beside it, so it must be ours and closed to them."""
    directory = Path(tempfile.gettempdir()) / f"pilot-{os.geteuid()}-{digest()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077 or directory.is_symlink():
        sys.exit(f"{directory} exists but is not a private directory of yours; set XDG_CACHE_HOME.")
    return directory


def venv() -> Path:
    """The virtual environment that the commands make and use."""
    return home() / ".venv"


def python() -> str:
    """The interpreter of the virtual environment."""
    return str(venv() / "bin" / "python")


def service_home() -> Path:
    """A directory for root that the database servers' account can enter, whatever the checkout is under."""
    directory = SERVICE_HOMES / digest()
    directory.mkdir(parents=True, exist_ok=True)
    for made in (SERVICE_HOMES, directory):
        made.chmod(0o755)  # whatever the umask
    return directory
