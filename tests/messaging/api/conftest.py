"""A tenant that can send: key, default instance, template and a recipient who agreed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client

from accounts.models import ApiKey, Project
from instances.models import DefaultInstance, Instance
from messaging.models import Template
from tests import factories


@dataclass
class Api:
    """A client program: it has a key, and talks JSON."""

    raw_key: str

    def post(self, path: str, body: Any, **headers: str) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call("POST", path, raw, **headers)

    def get(self, path: str, **parameters: Any) -> Any:
        return Client(raise_request_exception=False).get(path, parameters, headers={"apikey": self.raw_key})

    def call(self, method: str, path: str, raw: bytes = b"", **headers: str) -> Any:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        content_type = names.pop("content-type", "application/json")
        client = Client(raise_request_exception=False)
        return client.generic(
            method, path, raw, content_type=content_type, headers={"apikey": self.raw_key} | names
        )


@dataclass
class World:
    """`api` belongs to `project`; `stranger` to another tenant."""

    project: Project
    instance: Instance
    template: Template
    key: ApiKey
    api: Api
    stranger: Api


@pytest.fixture
def world(db: None) -> World:
    project = factories.make_project()
    instance = factories.make_instance(project.tenant, name="loja")
    DefaultInstance.objects.create(project=project, instance=instance)
    factories.make_opt_in(project.tenant, "+5511999990000")
    key, raw = factories.make_key(project)
    _other, strange = factories.make_key()
    return World(
        project=project,
        instance=instance,
        template=factories.make_template(project),
        key=key,
        api=Api(raw),
        stranger=Api(strange),
    )
