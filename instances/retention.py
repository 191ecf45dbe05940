"""What of instances may go: the history of their connections, and the hours of their charts."""

from __future__ import annotations

from instances.models import InstanceEvent, InstanceHour
from pilot.retention import pruned

STEPS = (
    pruned("instance_events", InstanceEvent.objects.all),
    pruned("instance_hours", InstanceHour.objects.all, at="hour"),
)
