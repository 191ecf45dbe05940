"""What a channel of alerts is, and the channels that there are (settings.ALERT_CHANNELS, by dotted path)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from django.conf import settings
from django.utils.module_loading import import_string

from pilot.models import Alert


class NotDelivered(Exception):
    """A channel did not take a notice. It is tried again, in `retry_after` seconds at the earliest, unless `final`."""

    def __init__(self, reason: str, *, final: bool = False, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.final = final
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Recipient:
    """An address in the channel (empty where there is but one) and the language to be used."""

    address: str
    language: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What is handed to a channel, in the recipient's language. `id` is the same whenever the same is sent again.

    Usually of one alert; of several, all of one kind, when many were raised at once.
    """

    id: str
    recipient: str
    kind: str
    alerts: Sequence[Alert]
    recovered: bool
    title: str
    text: str
    at: datetime


class Channel(Protocol):
    """A way to tell somebody. It is off while recipients() gives none."""

    audience: Literal["operators", "tenant"]

    def recipients(self, alert: Alert) -> Iterable[Recipient]:
        """Those to be told of it. Reads rows and settings, and nothing else."""

    def send(self, notice: Notice) -> None:
        """Hands it over, in less than delivering.LEASE. Raises NotDelivered."""


def names() -> list[str]:
    """Every channel's name."""
    return list(settings.ALERT_CHANNELS)


def channel(name: str) -> Channel:
    """The channel of that name. Raises KeyError when the settings have none."""
    made: Channel = import_string(settings.ALERT_CHANNELS[name])()
    return made


def operators(*addresses: str) -> list[Recipient]:
    """Those who run Pilot, under these addresses of a channel."""
    return [Recipient(address, settings.LANGUAGE_CODE) for address in addresses]
