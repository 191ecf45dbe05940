"""Signatures that receivers can check, also while a secret is replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from standardwebhooks import Webhook, WebhookVerificationError

from webhooks import signing

BODY = json.dumps({"type": "message.read", "data": {"text": "Olá, não é?"}}, ensure_ascii=False).encode()
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _clock() -> Iterator[None]:
    """The library of the standard looks at the clock."""
    with time_machine.travel(NOW):
        yield


def signed(*secrets: str, body: bytes = BODY, now: datetime = NOW) -> dict[str, str]:
    return signing.headers("evt_m1", body, secrets=secrets, now=now)


def test_is_verified_by_the_library_of_the_standard() -> None:
    secret = signing.new_secret()

    assert Webhook(secret).verify(BODY, signed(secret)) == json.loads(BODY)


def test_signs_as_the_library_of_the_standard() -> None:
    secret = signing.new_secret()
    theirs = Webhook(secret).sign("evt_m1", NOW, BODY.decode())

    assert signing.sign(secret, "evt_m1", str(int(NOW.timestamp())), BODY) == theirs


def test_is_not_verified_with_another_secret_or_body() -> None:
    secret = signing.new_secret()

    for other, body in ((signing.new_secret(), BODY), (secret, BODY + b" ")):
        with pytest.raises(WebhookVerificationError):
            Webhook(other).verify(body, signed(secret))


def test_both_secrets_verify_during_a_rotation_and_only_the_new_one_after() -> None:
    old, new = signing.new_secret(), signing.new_secret()
    kept = signing.rotated([{"secret": old, "ends_at": None}], new, ends_at=NOW + timedelta(hours=1), now=NOW)

    during = signed(*signing.working(kept, now=NOW))
    assert len(during["webhook-signature"].split()) == 2
    for secret in (old, new):
        Webhook(secret).verify(BODY, during)

    after = signing.working(kept, now=NOW + timedelta(hours=1))
    assert after == [new]
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify(BODY, signed(*after))


def test_a_second_rotation_does_not_lengthen_the_life_of_the_first_secret() -> None:
    first, second, third = (signing.new_secret() for _ in range(3))
    kept = signing.rotated(
        [{"secret": first, "ends_at": None}], second, ends_at=NOW + timedelta(hours=1), now=NOW
    )
    kept = signing.rotated(kept, third, ends_at=NOW + timedelta(hours=5), now=NOW)

    assert signing.working(kept, now=NOW) == [third, second, first]
    assert signing.working(kept, now=NOW + timedelta(hours=2)) == [third, second]
    assert signing.working(kept, now=NOW + timedelta(hours=5)) == [third]


def test_no_overlap_ends_every_older_secret() -> None:
    kept = signing.rotated([{"secret": "whsec_b2xk", "ends_at": None}], "whsec_bmV3", ends_at=NOW, now=NOW)

    assert signing.working(kept, now=NOW) == ["whsec_bmV3"]


def test_every_secret_is_new() -> None:
    assert len({signing.new_secret() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({}, "valid"),
        ({"webhook-id": ""}, "headers_missing"),
        ({"webhook-signature": ""}, "headers_missing"),
        ({"webhook-timestamp": "soon"}, "timestamp_unreadable"),
        ({"webhook-timestamp": "²"}, "timestamp_unreadable"),
        ({"webhook-id": "evt_m2"}, "no_match"),
        ({"webhook-signature": "v1,AAAA"}, "no_match"),
        ({"webhook-signature": "v1,ção\ud800"}, "no_match"),
    ],
)
def test_examines_what_somebody_received(change: dict[str, str], finding: str) -> None:
    secret = signing.new_secret()
    given = {name.title(): value for name, value in (signed(secret) | change).items()}

    assert signing.examine(given, BODY, secrets=[secret], now=NOW) == finding


@pytest.mark.parametrize(
    ("minutes", "finding"), [(5, "valid"), (-5, "valid"), (6, "too_old"), (-6, "too_new")]
)
def test_a_signature_is_good_for_five_minutes(minutes: int, finding: str) -> None:
    secret = signing.new_secret()
    second = NOW.replace(microsecond=0)
    given = signed(secret, now=second)

    found = signing.examine(given, BODY, secrets=[secret], now=second + timedelta(minutes=minutes))

    assert found == finding
