"""A sandbox to connect instances to, and servers that misbehave."""

from tests.providers.conftest import peer
from tests.sandboxes import sandbox, sandbox_process

__all__ = ["peer", "sandbox", "sandbox_process"]
