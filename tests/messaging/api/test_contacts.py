"""The API of contacts and opt-ins."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import AuditEntry, Event
from messaging.models import Contact, OptIn
from tests import factories
from tests.messaging.api.conftest import World
from tests.messaging.api.test_messages import TEXT, error

pytestmark = pytest.mark.django_db

ANA = "+5511988887777"


def upload(world: World, text: str | bytes) -> Any:
    raw = text.encode() if isinstance(text, str) else text
    return world.api.call("POST", "/api/contacts/import", raw, content_type="text/csv")


def test_records_an_opt_in_and_lets_the_person_be_written_to(world: World) -> None:
    refused = world.api.post("/api/messages", TEXT | {"to": ANA})
    assert error(refused)["code"] == "opt_in_required"

    granted = world.api.call(
        "PUT", "/api/contacts/11988887777/opt-in", b'{"source": "checkout", "evidence": "box 1"}'
    )
    assert (granted.status_code, granted.json()["source"], granted.json()["revoked_at"]) == (
        200,
        "checkout",
        None,
    )
    assert world.api.get(f"/api/contacts/{ANA}/opt-in").json() == granted.json()
    assert world.api.get(f"/api/contacts/{ANA}").json()["opt_in"]["evidence"] == "box 1"
    assert world.api.post("/api/messages", TEXT | {"to": ANA}).status_code == 202
    assert AuditEntry.objects.get().action == "opt_in.granted"


def test_records_an_opt_out_that_nothing_skips(world: World) -> None:
    factories.make_opt_in(world.project.tenant, ANA)
    revoked = world.api.call("DELETE", f"/api/contacts/{ANA}/opt-in?source=telephone")
    assert revoked.status_code == 200
    assert revoked.json()["revoked_at"]
    refused = world.api.post("/api/messages", TEXT | {"to": ANA, "skip_opt_in_validation": True})
    assert error(refused)["code"] == "opted_out"
    assert [event.detail["status"] for event in Event.objects.all()] == ["revoked"]
    assert AuditEntry.objects.get().action == "opt_in.revoked"


def test_keeps_a_name(world: World) -> None:
    kept = world.api.call("PUT", f"/api/contacts/{ANA}", b'{"name": "Ana"}')
    assert (kept.status_code, kept.json()["name"], kept.json()["opt_in"]) == (200, "Ana", None)
    assert world.api.get("/api/contacts/(11) 98888-7777").json()["name"] == "Ana"
    assert world.api.get("/api/contacts/+5511977776666").status_code == 404
    bad = world.api.get("/api/contacts/12")
    assert (bad.status_code, set(error(bad)["fields"])) == (400, {"number"})


def test_lists_by_number_with_as_many_statements_for_many(world: World) -> None:
    Contact.objects.all().delete()
    numbers = [f"+55119{number:08d}" for number in range(88880000, 88880005)]
    for number in numbers:
        Contact.objects.create(tenant=world.project.tenant, number=number)
    first = world.api.get("/api/contacts", limit=3).json()
    with CaptureQueriesContext(connection) as few:
        second = world.api.get("/api/contacts", limit=3, cursor=first["next_cursor"]).json()
    assert [each["number"] for each in first["contacts"] + second["contacts"]] == numbers
    with CaptureQueriesContext(connection) as many:
        world.api.get("/api/contacts")
    assert len(many) == len(few)


# --- files ------------------------------------------------------------------------------------------------


def test_takes_in_a_file_and_names_what_is_wrong_with_which_row(world: World) -> None:
    opted_out = "+5511977776666"
    factories.make_opt_in(world.project.tenant, opted_out, revoked_at=factories.NOW)
    answer = upload(
        world,
        "number,name,opt_in,source,evidence\r\n"
        "+5511988887777,Ana,yes,loja,caixa\r\n"
        "11 98888-6666,Bia,,,\r\n"
        "12,Curto,,,\r\n"
        "+5511988885555,Caio,talvez,,\r\n"
        "+5511988884444,Davi,yes,,\r\n"
        "+5511988883333,Eva,no,,\r\n"
        f"{opted_out},Fabio,yes,loja,\r\n"
        "+5511988882222,a,,,,,extra\r\n"
        '+5511988887777,"Ana, de novo",,,\r\n',
    )
    assert answer.status_code == 200
    body = answer.json()
    assert body["taken"] == 5
    assert [(fault["row"], fault["field"]) for fault in body["refused"]] == [
        (3, "number"),
        (4, "opt_in"),
        (5, "source"),
        (8, "number"),
    ]
    names = dict(Contact.objects.filter(tenant=world.project.tenant).values_list("number", "name"))
    assert names[ANA] == "Ana, de novo"
    assert names["+5511988886666"] == "Bia"
    records = {row.number: (bool(row.granted_at), bool(row.revoked_at)) for row in OptIn.objects.all()}
    assert records["+5511988883333"] == (False, True)
    assert records[opted_out] == (True, True)
    assert upload(world, "number\n+5511988886666\n").json()["taken"] == 1
    assert Contact.objects.get(number="+5511988886666").name == "Bia"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"name\nAna\n",
        b"number,colour\n1,2\n",
        b"number,number\n1,2\n",
        b"number\n\x00\n",
        b"number\n" + b"12\n" * 10_001,
    ],
)
def test_refuses_a_file_that_is_none(world: World, raw: bytes) -> None:
    answer = upload(world, raw)
    assert (answer.status_code, error(answer)["code"], set(error(answer)["fields"])) == (
        400,
        "bad_file",
        {"body"},
    )


def test_reads_the_files_of_brazilian_spreadsheets(world: World) -> None:
    assert upload(world, "\ufeffnumber;name;opt_in;source\n11988887777;Ana;sim;loja\n").json() == {
        "taken": 1,
        "refused": [],
    }
    assert OptIn.objects.filter(number=ANA).exists()


def test_takes_no_other_kind_of_body(world: World) -> None:
    answer = world.api.post("/api/contacts/import", {"number": ANA})
    assert (answer.status_code, error(answer)["code"]) == (415, "unsupported_media_type")


def test_gives_back_what_it_took_in(world: World) -> None:
    Contact.objects.all().delete()
    OptIn.objects.all().delete()
    upload(
        world,
        "number,name,opt_in,source,evidence\n"
        + ANA
        + ',"=HYPERLINK(1)",yes,loja,"a, b"\n+5511988886666,Bia,,,\n',
    )
    answer = world.api.get("/api/contacts/export")
    assert answer["Content-Type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert [row["number"] for row in rows] == ["+5511988886666", ANA]
    assert rows[1] == {
        "number": ANA,
        "name": "'=HYPERLINK(1)",
        "opt_in": "yes",
        "source": "loja",
        "evidence": "a, b",
    }


def test_shows_the_people_of_no_other_tenant(world: World) -> None:
    world.api.call("PUT", f"/api/contacts/{ANA}", b'{"name": "Ana"}')
    assert world.stranger.get("/api/contacts").json()["contacts"] == []
    assert world.stranger.get(f"/api/contacts/{ANA}").status_code == 404
    assert b"Ana" not in world.stranger.get("/api/contacts/export").getvalue()
    world.stranger.call("PUT", f"/api/contacts/{ANA}", b'{"name": "Outra"}')
    assert world.api.get(f"/api/contacts/{ANA}").json()["name"] == "Ana"
