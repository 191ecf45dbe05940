"""Parts of a page that stay true: a fragment that asks again, and is answered 204 while nothing changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.safestring import SafeString


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A fragment: `url` answers it again, `every` so many seconds (0: it will not change any more)."""

    name: str
    template: str
    url: str
    every: int

    def render(self, request: HttpRequest, context: Mapping[str, Any]) -> SafeString:
        """The fragment, for the page that holds it."""
        body = render_to_string(self.template, dict(context), request)
        return self._wrap(body)

    def answer(self, request: HttpRequest, context: Mapping[str, Any]) -> HttpResponse:
        """The fragment for its own request, or 204 when the browser already shows exactly this."""
        body = render_to_string(self.template, dict(context), request)
        if self.every and request.GET.get("seen") == _digest(body):
            return HttpResponse(status=204)
        return HttpResponse(self._wrap(body))

    def _wrap(self, body: str) -> SafeString:
        return render_to_string("dashboard/live.html", {"live": self, "body": body, "seen": _digest(body)})


def _digest(body: str) -> str:
    return hashlib.blake2s(body.encode(), digest_size=8).hexdigest()
