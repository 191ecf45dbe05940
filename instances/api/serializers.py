"""The shape of an instance in the API."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from instances.models import InstanceStatus
from pilot.api import InstantField


class InstanceSerializer(serializers.Serializer[Any]):
    """A number that messages are sent from."""

    name = serializers.CharField(help_text="What `instance` in a request refers to.")
    status = serializers.ChoiceField(InstanceStatus.choices, help_text="Messages wait unless it is `open`.")
    since = InstantField(source="status_changed_at", help_text="Since when it is in that state.")
    paused = serializers.BooleanField(help_text="Whether somebody put its sending on hold.")
    number = serializers.CharField(help_text="Its number in E.164; empty until it was connected.")


class InstancePageSerializer(serializers.Serializer[Any]):
    instances = InstanceSerializer(many=True, help_text="In the order of their names.")
    next_cursor = serializers.CharField(allow_null=True, help_text="For the next page; null on the last one.")
