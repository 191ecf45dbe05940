"""What of instances may go: the history of their connections, outages that are over, and the hours of their charts."""

from __future__ import annotations

from instances.models import InstanceEvent, InstanceHour, Outage
from pilot.retention import pruned

STEPS = (
    pruned("instance_events", InstanceEvent.objects.all),
    pruned("outages", lambda: Outage.objects.filter(ended_at__isnull=False), at="began_at"),
    pruned("instance_hours", InstanceHour.objects.all, at="hour"),
)
