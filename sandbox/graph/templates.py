"""Message templates of a WABA: listed in pages, and matched against what is sent."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.graph.accounts import Account, Row
from sandbox.graph.calls import Answer, Call
from sandbox.graph.errors import GraphError
from sandbox.graph.server import Graph

PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
MEDIA_HEADERS = {"IMAGE": "image", "VIDEO": "video", "DOCUMENT": "document"}
PAGE = 25


def put(graph: Graph, business_id: str, template: Mapping[str, Any]) -> dict[str, Any]:
    """Make or change a template, approved unless it says otherwise."""
    fields = {
        "status": "APPROVED",
        "category": "UTILITY",
        "parameter_format": "POSITIONAL",
        "components": [],
        **template,
        "business_id": business_id,
    }
    id_ = f"{business_id}/{fields['name']}/{fields['language']}"
    fields.setdefault("id", str(zlib.crc32(id_.encode())))
    graph.objects.put("template", id_, fields)
    return fields


async def list_all(graph: Graph, call: Call) -> Answer:
    """GET /{waba}/message_templates, in pages with a cursor."""
    limit = int(call.query.get("limit", PAGE))
    start = int(call.query.get("after", 0))
    wanted = call.query.get("name")
    found = [
        row.fields
        for row in _of(graph, call.account.business_id)
        if wanted is None or row.fields["name"] == wanted
    ]
    page = found[start : start + limit]
    shown = [{key: value for key, value in fields.items() if key != "business_id"} for fields in page]
    paging: dict[str, Any] = {"cursors": {"before": str(start), "after": str(start + len(page))}}
    if start + len(page) < len(found):
        paging["next"] = f"{call.url}/v0.0/{call.node}/message_templates?after={start + len(page)}"
    return 200, {"data": shown, "paging": paging}


def _of(graph: Graph, business_id: str) -> list[Row]:
    return [row for row in graph.objects.all("template") if row.fields["business_id"] == business_id]


def match(graph: Graph, account: Account, sent: Mapping[str, Any]) -> str:
    """The category of the template that is sent. Raises GraphError as Meta does for one that does not fit."""
    name, language = sent["name"], sent["language"]["code"]
    row = graph.objects.get("template", f"{account.business_id}/{name}/{language}")
    if row is None or row.fields["status"] not in {"APPROVED", "PAUSED"}:
        raise GraphError(132001, f"template name ({name}) does not exist in {language}")
    if row.fields["status"] == "PAUSED":
        raise GraphError(132015)
    given = {component.get("type"): component for component in sent.get("components") or []}
    for component in row.fields["components"]:
        _match_component(component, given)
    return str(row.fields["category"]).lower()


def _match_component(component: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    kind = str(component["type"]).lower()
    parameters: Sequence[Mapping[str, Any]] = given.get(kind, {}).get("parameters") or []
    if kind == "header" and component.get("format") in MEDIA_HEADERS:
        wanted = MEDIA_HEADERS[component["format"]]
        if [parameter.get("type") for parameter in parameters] != [wanted]:
            raise GraphError(
                132012, f"header: Format mismatch, expected {component['format']}, received UNKNOWN"
            )
        return
    if kind not in {"header", "body"}:
        return
    places = list(dict.fromkeys(PLACE.findall(component.get("text", ""))))
    if len(places) != len(parameters):
        raise GraphError(
            132000,
            f"{kind}: number of localizable_params ({len(parameters)}) does not match the expected number of"
            f" params ({len(places)})",
        )
    named = [parameter["parameter_name"] for parameter in parameters if parameter.get("parameter_name")]
    if places and not places[0].isdecimal() and sorted(named) != sorted(places):
        raise GraphError(132012, f"{kind}: Parameter name is missing or empty")
