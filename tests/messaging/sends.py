"""A dispatcher that sends to the sandbox: what tests of whole sends share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import connections
from django.utils import timezone

from instances import accounts
from instances.models import EvolutionServer, Instance, Lane
from messaging.dispatching import Dispatcher
from messaging.models import Message, MessageEvent
from tests.factories import make_instance, make_message
from tests.sandbox.emulator import Emulator
from tests.sandboxes import server_of


class Sends:
    """Instances that are open in the sandbox, and one dispatcher in this process."""

    def __init__(self, emulator: Emulator) -> None:
        accounts.forget()
        self.emulator = emulator
        self.server: EvolutionServer = server_of(emulator)
        self.dispatcher = Dispatcher(in_flight=50)
        self.dispatcher.start()

    def instance(self, **fields: Any) -> Instance:
        instance = make_instance(server=self.server, **fields)
        Lane.objects.filter(instance=instance).update(
            next_send_at=timezone.now(), next_urgent_at=timezone.now()
        )
        self.emulator.create(instance.provider_name)
        return instance

    def message(self, instance: Instance, **fields: Any) -> Message:
        now = timezone.now()
        times = {"created_at": now, "deliver_until": now + timedelta(minutes=5)}
        return make_message(instance=instance, **times | fields)

    def run(self, *instances: Instance) -> None:
        """Wakes and waits until nothing is left to do."""
        self.dispatcher.wake(*(instance.pk for instance in instances))
        assert self.dispatcher.idle(timeout=20)

    def texts(self) -> list[str]:
        return [entry["text"] for entry in self.emulator.ledger()]

    def close(self) -> None:
        assert self.dispatcher.stop(timeout=10)
        connections.close_all()


def timeline(message: Message) -> list[str]:
    """The kinds of a message's events, in order."""
    return list(MessageEvent.objects.filter(message=message).order_by("id").values_list("kind", flat=True))
