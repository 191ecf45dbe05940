"""Which tenant a signed-in person acts for, and who is support staff: decided here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.cache import patch_cache_control
from django_htmx.http import HttpResponseClientRefresh

from accounts.models import Membership, Role, Tenant, User, zone_of

SESSION_KEY = "tenant_id"
RANK = {Role.VIEWER: 0, Role.AGENT: 1, Role.ADMIN: 2, Role.OWNER: 3}
OWN_FILES_ONLY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
P = ParamSpec("P")


class MemberRequest(HttpRequest):
    """The request that a `member_view` is given."""

    user: User
    membership: Membership
    memberships: list[Membership]
    tenant: Tenant
    may_manage: bool


class StaffRequest(HttpRequest):
    """The request that a `staff_view` is given."""

    user: User


MemberView = Callable[Concatenate[MemberRequest, P], HttpResponse]
StaffView = Callable[Concatenate[StaffRequest, P], HttpResponse]
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def member_view(*, role: Role = Role.VIEWER) -> Callable[[MemberView[P]], View[P]]:
    """Gives the view `request.membership` and `request.tenant`, and the tenant's time zone.

    Anonymous people are sent to the login page, those of no tenant get a page that says so, and those whose role
    is less than `role` get 403.
    """

    def decorate(view: MemberView[P]) -> View[P]:
        @wraps(view)
        def guarded(request: MemberRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if not request.user.is_authenticated:
                return _to_login(request)
            if not admit(request):
                return render(request, "account/no_membership.html", status=403)
            if not reaches(request.membership, role):
                raise PermissionDenied
            with timezone.override(zone_of(request.tenant)):
                response = view(request, *args, **kwargs)
            return _sealed(response)

        return guarded  # type: ignore[return-value]

    return decorate


def staff_view(*, permission: str) -> Callable[[StaffView[P]], View[P]]:
    """Lets in the support staff that has the permission: their pages show every tenant.

    Anonymous people are sent to the login page, all others get 403.
    """

    def decorate(view: StaffView[P]) -> View[P]:
        @wraps(view)
        def guarded(request: StaffRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if not request.user.is_authenticated:
                return _to_login(request)
            if not (request.user.is_staff and request.user.has_perm(permission)):
                raise PermissionDenied
            return _sealed(view(request, *args, **kwargs))

        return guarded  # type: ignore[return-value]

    return decorate


def admit(request: MemberRequest) -> bool:
    """Sets who the person acts for: the tenant chosen in this session, else the first. False without any."""
    request.memberships = list(
        Membership.objects.select_related("tenant").filter(user=request.user).order_by("tenant__name", "id")
    )
    if not request.memberships:
        return False
    chosen = request.session.get(SESSION_KEY)
    request.membership = next(
        (m for m in request.memberships if m.tenant_id == chosen), request.memberships[0]
    )
    request.tenant = request.membership.tenant
    request.may_manage = reaches(request.membership, Role.ADMIN)
    return True


def choose(request: MemberRequest, tenant_id: int) -> bool:
    """Remembers the tenant for this session. False when the person is no member of it."""
    if all(membership.tenant_id != tenant_id for membership in request.memberships):
        return False
    request.session[SESSION_KEY] = tenant_id
    return True


def reaches(membership: Membership, role: Role) -> bool:
    """Whether the member may do what `role` may do."""
    return RANK[Role(membership.role)] >= RANK[role]


def _sealed(response: HttpResponse) -> HttpResponse:
    """For one person's eyes, and running nothing but our own files: a message's text is anybody's."""
    patch_cache_control(response, private=True, no_store=True)
    response["Content-Security-Policy"] = OWN_FILES_ONLY
    return response


def _to_login(request: HttpRequest) -> HttpResponse:
    # A fragment must not be filled with the login page: htmx reloads the whole page, which then redirects.
    if request.headers.get("HX-Request"):
        return HttpResponseClientRefresh()
    return redirect_to_login(request.get_full_path())
