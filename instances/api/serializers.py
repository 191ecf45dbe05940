"""The shapes of the instance API."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework import serializers

from instances.forms import NumberForm
from instances.models import InstanceStatus
from pilot.api import InstantField, StrictSerializer


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


class NewInstanceSerializer(StrictSerializer):
    name = serializers.SlugField(
        max_length=60, help_text="What `instance` in a message refers to: letters, digits, `-` and `_`."
    )


class PairSerializer(StrictSerializer):
    number = serializers.CharField(
        required=False, max_length=30, help_text="The telephone's number, to get a code to type on it."
    )

    def validate_number(self, given: str) -> str:
        form = NumberForm({"number": given})
        if not form.is_valid():
            raise serializers.ValidationError(_("This is not a valid telephone number."))
        return str(form.cleaned_data["number"])


class PairingSerializer(serializers.Serializer[Any]):
    """How to connect an instance."""

    status = serializers.ChoiceField(InstanceStatus.choices, help_text="`open` once it is connected.")
    qr_code = serializers.CharField(
        help_text="What the code to scan says: draw it as a QR code. Empty until there is one; ask again."
    )
    pairing_code = serializers.CharField(help_text="The code to type; empty unless a number was given.")
    expires_at = InstantField(
        source="qr_expires_at", allow_null=True, help_text="When the codes end; null while there are none."
    )
