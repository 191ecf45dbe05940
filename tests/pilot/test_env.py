"""Environment variables are read once, and nonsense refuses to start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from pilot import env
from pilot.database import settings_from_url


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    def give(value: str) -> None:
        monkeypatch.setenv("PILOT_PROBE", value)

    return give


@pytest.mark.parametrize(("value", "is_"), [("1", True), ("Yes", True), ("off", False), ("", True)])
def test_reads_yes_and_no(given: Any, value: str, is_: bool) -> None:
    given(value)

    assert env.boolean("PILOT_PROBE", True) is is_


@pytest.mark.parametrize("value", ["maybe", "2", "ja"])
def test_refuses_what_is_neither_yes_nor_no(given: Any, value: str) -> None:
    given(value)

    with pytest.raises(ImproperlyConfigured, match="PILOT_PROBE"):
        env.boolean("PILOT_PROBE", True)


@pytest.mark.parametrize("value", ["ten", "1.5", "0", "101", "-1"])
def test_refuses_numbers_out_of_bounds(given: Any, value: str) -> None:
    given(value)

    with pytest.raises(ImproperlyConfigured, match="PILOT_PROBE"):
        env.integer("PILOT_PROBE", 5, least=1, most=100)


@pytest.mark.parametrize("value", ["localhost:5432", "ftp://host/x", "postgres://", "http:/one-slash"])
def test_refuses_what_is_not_such_a_url(given: Any, value: str) -> None:
    given(value)

    with pytest.raises(ImproperlyConfigured, match="PILOT_PROBE"):
        env.url("PILOT_PROBE", schemes=("postgres", "http"))


@pytest.mark.parametrize(
    "value", ["short", "whsec_c2hvcnQ=", "not base64, but long enough to be one", "ç" * 40]
)
def test_refuses_what_is_no_key_to_sign_with(given: Any, value: str) -> None:
    given(value)

    with pytest.raises(ImproperlyConfigured, match="PILOT_PROBE"):
        env.signing_key("PILOT_PROBE", "")


@pytest.mark.parametrize(
    "value", ["", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
)
def test_takes_a_key_to_sign_with(given: Any, value: str) -> None:
    given(value)

    assert env.signing_key("PILOT_PROBE", "") == value


@pytest.mark.parametrize("value", ["5511999990000", "+55 11 99999-0000", "+0551199", "+٥٥١١٩٩٩٩٩٠٠٠٠"])
def test_refuses_what_is_no_number_of_a_phone(given: Any, value: str) -> None:
    given(value)

    with pytest.raises(ImproperlyConfigured, match="PILOT_PROBE"):
        env.phone("PILOT_PROBE", "")


@pytest.mark.parametrize("value", ["+5511999990000", ""])
def test_reads_the_number_of_a_phone(given: Any, value: str) -> None:
    given(value)

    assert env.phone("PILOT_PROBE", "") == value


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(ImproperlyConfigured, match="PILOT_ABSENT"):
        env.text("PILOT_ABSENT")


def test_reads_a_secret_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    monkeypatch.setenv("PILOT_PROBE_FILE", str(tmp_path / "secret"))

    assert env.text("PILOT_PROBE") == "s3cret"


def test_a_secret_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOT_PROBE_FILE", "/nowhere/secret")

    with pytest.raises(ImproperlyConfigured, match="PILOT_PROBE_FILE"):
        env.text("PILOT_PROBE")


def test_a_database_url_may_hold_any_character_and_options() -> None:
    database = settings_from_url(
        "postgres://us%40er:p%2Fw@db.example:6543/pi%20lot?sslmode=require",
        pool_size=3,
        statement_timeout_ms=9,
    )

    assert (database["USER"], database["PASSWORD"], database["NAME"]) == ("us@er", "p/w", "pi lot")
    assert (database["HOST"], database["PORT"]) == ("db.example", "6543")
    assert database["OPTIONS"]["sslmode"] == "require"
    assert "statement_timeout=9" in database["OPTIONS"]["options"]


def test_a_database_url_names_a_database() -> None:
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL"):
        settings_from_url("postgres://host", pool_size=3, statement_timeout_ms=9)


def test_reads_networks_and_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOT_PROBE", "10.0.0.0/8, fd00::/8,192.168.1.7")
    assert [str(network) for network in env.networks("PILOT_PROBE")] == [
        "10.0.0.0/8",
        "fd00::/8",
        "192.168.1.7/32",
    ]
    monkeypatch.setenv("PILOT_PROBE", "443, 8443")
    assert env.ports("PILOT_PROBE", "80") == {443, 8443}


@pytest.mark.parametrize("wrong", ["10.0.0.1/8", "intranet", "10.0.0.0/33"])
def test_refuses_what_is_no_network(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("PILOT_PROBE", wrong)

    with pytest.raises(ImproperlyConfigured, match="PILOT_PROBE"):
        env.networks("PILOT_PROBE")


@pytest.mark.parametrize("wrong", ["0", "65536", "http", "-1", "²"])
def test_refuses_what_is_no_port(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("PILOT_PROBE", wrong)

    with pytest.raises(ImproperlyConfigured, match="PILOT_PROBE"):
        env.ports("PILOT_PROBE", "80")
