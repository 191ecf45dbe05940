"""What a provider says is cut to what can be stored, or taken for not said."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from django.db import connection

from instances.models import Instance
from instances.providers import bounds
from instances.providers.base import Finding, Found, Outcome, ProviderError, Receipt, StatusEvent
from messaging.models import Contact, Message, ParkedReceipt, ReceivedMessage
from webhooks.models import InboundCall

JID = "5511987654321@s.whatsapp.net"
NO_IDS = ["X" * 256, "a\x00b", "a\ud800", "é", "a\nb", None, "", [], {"id": 1}, 1.5, True]


@pytest.mark.parametrize("said", NO_IDS, ids=ascii)
def test_takes_what_cannot_be_stored_for_no_id(said: Any) -> None:
    assert bounds.identifier(said, most=bounds.ID_LENGTH) == ""


@pytest.mark.parametrize("said", ["3EB0AA", "wamid.HBgL+/=", "X" * 255, 42])
def test_takes_an_id_as_it_is(said: Any) -> None:
    assert bounds.identifier(said, most=bounds.ID_LENGTH) == str(said)


def test_ids_fit_their_columns() -> None:
    columns = [
        *(
            (model, "provider_message_id", bounds.ID_LENGTH)
            for model in (Message, ParkedReceipt, ReceivedMessage)
        ),
        *((model, "recipient_id", bounds.ADDRESS_LENGTH) for model in (Message, Contact)),
        (ReceivedMessage, "sender_id", bounds.ADDRESS_LENGTH),
        (Instance, "owner_id", bounds.ADDRESS_LENGTH),
        (Message, "failure_detail", bounds.DETAIL_LENGTH),
        (InboundCall, "error", bounds.DETAIL_LENGTH),
    ]

    assert [model._meta.get_field(name).max_length for model, name, _most in columns] == [
        most for _model, _name, most in columns
    ]


def test_no_value_of_the_contract_has_an_id_that_cannot_be_stored() -> None:
    odd = {"provider_message_id": "X" * 256, "recipient_id": "J" * 141}

    for value in (
        Receipt(status="submitted", **odd),
        Found(Finding.FOUND, status="sent", **odd),
        StatusEvent(status="read", **odd),
    ):
        assert (value.provider_message_id, value.recipient_id) == ("", "")
    assert Receipt("3EB0AA", JID, "submitted").recipient_id == JID


def test_an_error_is_short_and_can_be_stored() -> None:
    error = ProviderError("rejected", "a\x00b\ud800" + "x" * 1000, outcome=Outcome.REJECTED)

    assert error.detail == "a\ufffdb\ufffd" + "x" * 496


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        (None, None),
        (30.0, 30.0),
        (0.0, 0.0),
        (-5.0, 0.0),
        (1e12, 3600.0),
        (math.inf, 3600.0),
        (math.nan, None),
    ],
)
def test_an_error_asks_for_an_hour_of_patience_at_most(said: float | None, waits: float | None) -> None:
    assert ProviderError("throttled", "", outcome=Outcome.RETRY, retry_after=said).retry_after == waits


ODD = {"a\x00": ["b\ud83d", {"c": [math.nan, math.inf, 1.5, 7, True, None]}], "ok": "Olá 😀"}


def test_replaces_what_no_database_can_store_at_any_depth() -> None:
    assert bounds.storable(ODD) == {
        "a\ufffd": ["b\ufffd", {"c": [None, None, 1.5, 7, True, None]}],
        "ok": "Olá 😀",
    }


@pytest.mark.django_db
def test_the_database_stores_what_is_storable() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb", [json.dumps(bounds.storable(ODD))])
        assert json.loads(cursor.fetchone()[0])["ok"] == "Olá 😀"
