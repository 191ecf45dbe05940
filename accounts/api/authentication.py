"""The API's door: a key in the header `apikey` or `Authorization: Bearer`, and what it may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, PermissionDenied
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from accounts import keys
from accounts.models import ApiKey

if TYPE_CHECKING:  # rest_framework.views imports this module
    from rest_framework.views import APIView


class ApiKeyAuthentication(BaseAuthentication):
    """Sets `request.auth` to the ApiKey. There is no user: a key acts for its project."""

    def authenticate(self, request: Request) -> tuple[None, ApiKey] | None:
        raw = raw_key(request)
        if not raw:
            return None
        try:
            return None, keys.authenticate(raw, now=timezone.now())
        except keys.InvalidKey as error:
            raise AuthenticationFailed(error.message) from None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="Pilot API"'


def raw_key(request: Request) -> str:
    """The key as sent, or an empty string."""
    if given := request.headers.get("apikey", "").strip():
        return str(given)
    kind, _space, given = request.headers.get("Authorization", "").partition(" ")
    return given.strip() if kind.lower() == "bearer" else ""


class HasScope(BasePermission):
    """Asks for the view's `read_scope` on GET and HEAD, for none on OPTIONS, and for its `write_scope` otherwise.

    A view that has a method and declares no scope for it lets nobody in.
    """

    def has_permission(self, request: Request, view: APIView) -> bool:
        key = key_of(request)
        if request.method == "OPTIONS":
            return True
        wanted = getattr(view, "read_scope" if request.method in SAFE_METHODS else "write_scope", None)
        if wanted is None:
            return not hasattr(view, str(request.method).lower())  # the view answers 405
        if wanted in key.scopes:
            return True
        raise PermissionDenied(_("This key does not have the scope %(scope)s.") % {"scope": wanted})


def key_of(request: Request) -> ApiKey:
    """The key that a request came with. Raises NotAuthenticated."""
    if isinstance(request.auth, ApiKey):
        return request.auth
    raise NotAuthenticated(_("The API key is missing, wrong, expired or revoked."))


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Documents both headers in the schema."""

    target_class = ApiKeyAuthentication
    name = ["apikey", "bearer"]

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        about = "An API key of the project, as the dashboard or `POST /api/keys` gave it out."
        return [
            {"type": "apiKey", "in": "header", "name": "apikey", "description": about},
            {
                "type": "http",
                "scheme": "bearer",
                "description": f"{about} For clients that prefer this header.",
            },
        ]

    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[Any]]]:
        return [{name: []} for name in self.name]  # either, not both
