"""Rows for tests of Meta's channels: an app, and numbers that were connected through it."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
from typing import Any

from django.test import Client

from accounts.models import Tenant
from instances import meta_apps
from instances.models import Instance, MetaApp
from tests.factories import make_instance, make_tenant

SECRET = "app-secret"
_ids = itertools.count(100)


def make_app(tenant: Tenant | None = None, secret: str = SECRET) -> MetaApp:
    return meta_apps.app_for(tenant=tenant or make_tenant(), secret=secret, name="Loja")


def make_meta_instance(tenant: Tenant | None = None, app: MetaApp | None = None, **fields: Any) -> Instance:
    """An open number of the Cloud API, without a rate."""
    tenant = tenant or make_tenant()
    account_id = str(next(_ids))
    values = {
        "provider": "meta",
        "server": None,
        "app": app or make_app(tenant),
        "account_id": account_id,
        "business_id": "waba-1",
        "credentials": {"token": f"token-{account_id}"},
        "concurrency": 50,
    }
    return make_instance(tenant, **values | fields)


def post(app: MetaApp, payload: Any, *, secret: str = SECRET, signature: str | None = None) -> Any:
    """What Meta would post, signed."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    signed = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": signed if signature is None else signature}
    return Client().post(
        f"/hooks/meta/{app.hook_token}", body, content_type="application/json", headers=headers
    )


def delivery(*values: tuple[Instance, dict[str, Any]], field: str = "messages") -> dict[str, Any]:
    """One delivery with a change for each value."""
    entries = [
        {"id": instance.business_id, "changes": [{"field": field, "value": _about(instance) | value}]}
        for instance, value in values
    ]
    return {"object": "whatsapp_business_account", "entry": entries}


def _about(instance: Instance) -> dict[str, Any]:
    return {"messaging_product": "whatsapp", "metadata": {"phone_number_id": instance.account_id}}


def of_status(id: str, status: str, **fields: Any) -> dict[str, Any]:
    return {"statuses": [{"id": id, "status": status, "timestamp": "1700000000", **fields}]}


def of_message(id: str = "wamid.I", sender: str = "5511999990000", **fields: Any) -> dict[str, Any]:
    message = {"from": sender, "id": id, "timestamp": "1796040000", "type": "text", "text": {"body": "oi"}}
    contact = {"profile": {"name": "Ana"}, "wa_id": sender}
    return {"contacts": [contact], "messages": [message | fields]}
