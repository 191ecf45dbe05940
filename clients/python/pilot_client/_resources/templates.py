"""Templates and their versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pilot_client._exchange import Flow, Listing, Request
from pilot_client._operations import Resource, X, listing, operation
from pilot_client._records import Preview, Template, TemplateVersion
from pilot_client._requests import given, path


class Templates(Resource[X]):
    """Templates of the key's project, known by their names."""

    @operation
    def create(
        self,
        name: str,
        *,
        category: str,
        text: str | None = None,
        title: str | None = None,
        footer: str | None = None,
        buttons: Sequence[Mapping[str, str]] | None = None,
        content: Mapping[str, Any] | None = None,
        publish: bool | None = None,
    ) -> Flow[Template]:
        """A new template; `text` with {{variables}}, or a `content` of another kind. Raises Conflict (`name_taken`)."""
        body = given(
            name=name,
            category=category,
            text=text,
            title=title,
            footer=footer,
            buttons=buttons,
            content=content,
            publish=publish,
        )
        return self._ask(Request("POST", "templates", json=body), Template.of)

    @operation
    def get(self, name: str) -> Flow[Template]:
        """A template with its current version."""
        return self._ask(Request("GET", path("templates", name), repeatable=True), Template.of)

    @listing
    def list(self, *, status: str | None = None, page_size: int = 50) -> Listing[Template]:
        """Templates, in the order of their names."""
        params = given(status=status, limit=page_size)
        return self._listing(
            Request("GET", "templates", repeatable=True, params=params), "templates", Template
        )

    @listing
    def versions(self, name: str, *, page_size: int = 50) -> Listing[TemplateVersion]:
        """A template's versions, newest first."""
        request = Request(
            "GET", path("templates", name, "versions"), repeatable=True, params={"limit": page_size}
        )
        return self._listing(request, "versions", TemplateVersion)

    @operation
    def add_version(
        self,
        name: str,
        *,
        text: str | None = None,
        title: str | None = None,
        footer: str | None = None,
        buttons: Sequence[Mapping[str, str]] | None = None,
        content: Mapping[str, Any] | None = None,
        publish: bool | None = None,
    ) -> Flow[TemplateVersion]:
        """A new version; messages are made from it once it is published. Earlier messages keep theirs."""
        body = given(text=text, title=title, footer=footer, buttons=buttons, content=content, publish=publish)
        return self._ask(Request("POST", path("templates", name, "versions"), json=body), TemplateVersion.of)

    @operation
    def publish(self, name: str, number: int) -> Flow[Template]:
        """Makes messages from this version, from now on."""
        return self._do("versions", number, "publish", name=name)

    @operation
    def archive(self, name: str) -> Flow[Template]:
        """Takes a template out of use."""
        return self._do("archive", name=name)

    @operation
    def restore(self, name: str) -> Flow[Template]:
        """Brings an archived template back."""
        return self._do("restore", name=name)

    @operation
    def preview(
        self, name: str, *, variables: Mapping[str, Any] | None = None, version: int | None = None
    ) -> Flow[Preview]:
        """The message that these variables would make, and what may be wrong with it."""
        body = given(variables=variables, version=version)
        request = Request("POST", path("templates", name, "preview"), repeatable=True, json=body)
        return self._ask(request, Preview.of)

    def _do(self, *what: object, name: str) -> Flow[Template]:
        return self._ask(Request("POST", path("templates", name, *what), repeatable=True), Template.of)
