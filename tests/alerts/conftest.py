"""Receivers of alerts."""

from __future__ import annotations

from tests.providers.conftest import peer

__all__ = ["peer"]
