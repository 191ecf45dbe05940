"""A sandbox to connect instances to."""

from tests.sandboxes import sandbox, sandbox_process

__all__ = ["sandbox", "sandbox_process"]
