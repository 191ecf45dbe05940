"""What no form, console or statement may store of how an instance sends."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from instances.models import Instance
from tests.factories import make_instance

pytestmark = pytest.mark.django_db

OUT_OF_BOUNDS = [
    {"pace_most_seconds": 3600.1},
    {"pace_most_seconds": 1e15},
    {"pace_least_seconds": -1.0},
    {"urgent_gap_seconds": 600.1},
    {"urgent_gap_seconds": -1.0},
    {"daily_cap": 1_000_001},
    {"typing_ms": 5001},
]
NOT_A_NUMBER = {"pace_most_seconds": float("nan")}
AT_THE_BOUNDS = {
    "pace_least_seconds": 3600,
    "pace_most_seconds": 3600,
    "urgent_gap_seconds": 600,
    "daily_cap": 1_000_000,
    "typing_ms": 5000,
}


@pytest.mark.parametrize("fields", [*OUT_OF_BOUNDS, NOT_A_NUMBER], ids=str)
def test_refuses_to_store_what_would_stop_an_instance(fields: dict[str, Any]) -> None:
    make_instance()

    with transaction.atomic(), pytest.raises(IntegrityError):
        Instance.objects.update(**fields)


@pytest.mark.parametrize("fields", OUT_OF_BOUNDS, ids=str)
def test_tells_a_person_which_field_is_wrong(fields: dict[str, Any]) -> None:
    instance = make_instance()
    for name, value in fields.items():
        setattr(instance, name, value)

    with pytest.raises(ValidationError) as raised:
        instance.full_clean()

    assert set(fields) <= set(raised.value.message_dict)


def test_stores_what_is_just_allowed() -> None:
    instance = make_instance(**AT_THE_BOUNDS)

    instance.full_clean()
