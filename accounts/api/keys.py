"""The API of keys, for programs that provision others. A key reaches those of its own project and environment, and
gives no right that it does not have."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import audit, keys
from accounts.api.authentication import key_of
from accounts.models import Action, ApiKey, KeyState, Scope
from pilot.api import (
    ApiView,
    InstantField,
    PageFilter,
    StrictSerializer,
    instant,
    page_of,
    refusals,
    validated,
)
from pilot.errors import PilotError

LONGEST_OVERLAP = 7 * 86_400  # seconds


class ScopeNotHeld(PilotError):
    """A key cannot give what it does not have."""

    code = "forbidden"
    status = 403


class KeySerializer(serializers.Serializer[Any]):
    """A key, without its secret."""

    prefix = serializers.CharField(help_text="The beginning of the key, by which it is known.")
    name = serializers.CharField(help_text="The program that uses it.")
    environment = serializers.CharField(help_text="`live` or `test`.")
    scopes = serializers.ListField(child=serializers.CharField(), help_text="What it may do.")
    state = serializers.SerializerMethodField(
        help_text="`active`, `ending` (replaced, and ends soon), `revoked` or `expired`."
    )
    created_at = InstantField(help_text="When it was issued.")
    expires_at = InstantField(allow_null=True, help_text="When it ends by itself; null: never.")
    last_used_at = InstantField(allow_null=True, help_text="When it was last used, to the minute.")
    ends_at = serializers.SerializerMethodField(help_text="When it ends or ended; null: not foreseen.")

    def get_state(self, key: ApiKey) -> str:
        return str(KeyState(keys.state(key, now=timezone.now())).value)

    def get_ends_at(self, key: ApiKey) -> str | None:
        return instant(keys.ends_at(key))


class IssuedKeySerializer(KeySerializer):
    key = serializers.CharField(help_text="The key itself. It cannot be had again.")


class KeyPageSerializer(serializers.Serializer[Any]):
    keys = KeySerializer(many=True, help_text="In the order of their prefixes.")
    next_cursor = serializers.CharField(allow_null=True, help_text="For the next page; null on the last one.")


class NewKeySerializer(StrictSerializer):
    name = serializers.CharField(max_length=80, help_text="The program that will use it.")
    scopes = serializers.ListField(
        child=serializers.ChoiceField(Scope.choices), min_length=1, help_text="What it may do."
    )
    expires_at = InstantField(required=False, help_text="When it ends by itself. Never unless given.")

    def validate_expires_at(self, given: datetime) -> datetime:
        if given <= timezone.now():
            raise serializers.ValidationError(_("Must be in the future."))
        return given


class KeyRotationSerializer(StrictSerializer):
    overlap_seconds = serializers.IntegerField(
        default=86_400,
        min_value=0,
        max_value=LONGEST_OVERLAP,
        help_text="For how long the old key goes on working beside the new one.",
    )


class KeysView(ApiView):
    read_scope = write_scope = Scope.KEYS_ADMIN

    @extend_schema(
        operation_id="list_keys",
        summary="List API keys",
        description="The keys of the key's project and environment, ended ones too.",
        parameters=[PageFilter],
        responses={200: KeyPageSerializer} | refusals(400, 403),
    )
    def get(self, request: Request) -> Response:
        wanted = validated(PageFilter, request.query_params.dict())
        rows = _keys(key_of(request)).filter(prefix__gt=wanted.get("cursor", "")).order_by("prefix")
        page, next_cursor = page_of(rows, limit=wanted["limit"], place=lambda key: key.prefix)
        return Response({"keys": KeySerializer(page, many=True).data, "next_cursor": next_cursor})

    @extend_schema(
        operation_id="issue_key",
        summary="Issue an API key",
        description="For the same project and environment, with scopes that the asking key has itself.",
        request=NewKeySerializer,
        responses={201: IssuedKeySerializer} | refusals(400, 403, 413, 415),
    )
    def post(self, request: Request) -> Response:
        wanted, own = validated(NewKeySerializer, request.data), key_of(request)
        _check_held(own, wanted["scopes"])
        with transaction.atomic():
            issued, raw = keys.issue(
                project=own.project,
                name=wanted["name"],
                environment=own.environment,
                scopes=wanted["scopes"],
                expires_at=wanted.get("expires_at"),
                now=timezone.now(),
            )
            _record(own, Action.KEY_ISSUED, issued, scopes=issued.scopes)
        return Response(_with_secret(issued, raw), status=201)


class KeyView(ApiView):
    read_scope = write_scope = Scope.KEYS_ADMIN

    @extend_schema(
        operation_id="get_key", summary="Get an API key", responses={200: KeySerializer} | refusals(403, 404)
    )
    def get(self, request: Request, prefix: str) -> Response:
        return Response(KeySerializer(_key(key_of(request), prefix)).data)

    @extend_schema(
        operation_id="revoke_key",
        summary="Revoke an API key",
        description="It ends at once. Asking again changes nothing.",
        responses={204: None} | refusals(403, 404),
    )
    def delete(self, request: Request, prefix: str) -> Response:
        own = key_of(request)
        key = _key(own, prefix)
        with transaction.atomic():
            if keys.revoke(key, now=timezone.now()):
                _record(own, Action.KEY_REVOKED, key)
        return Response(status=204)


class KeyRotationView(ApiView):
    write_scope = Scope.KEYS_ADMIN

    @extend_schema(
        operation_id="rotate_key",
        summary="Rotate an API key",
        description="Issues a successor with the same rights; the old key goes on working for `overlap_seconds`.",
        request=KeyRotationSerializer,
        responses={201: IssuedKeySerializer} | refusals(400, 403, 404, 409, 413, 415),
    )
    def post(self, request: Request, prefix: str) -> Response:
        own, now = key_of(request), timezone.now()
        overlap = timedelta(seconds=validated(KeyRotationSerializer, request.data)["overlap_seconds"])
        key = _key(own, prefix)
        _check_held(own, key.scopes)
        with transaction.atomic():
            successor, raw = keys.rotate(key, overlap=overlap, now=now)
            _record(own, Action.KEY_ROTATED, key, successor=successor.prefix)
        return Response(_with_secret(successor, raw), status=201)


def _keys(own: ApiKey) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(project_id=own.project_id, environment=own.environment)


def _key(own: ApiKey, prefix: str) -> ApiKey:
    key = _keys(own).filter(prefix=prefix).select_related("project__tenant").first()
    if key is None:
        raise Http404
    return key


def _check_held(own: ApiKey, wanted: list[str]) -> None:
    missing = sorted(set(wanted) - set(own.scopes))
    if missing:
        fault = _("This key does not have the scope %(scope)s.") % {"scope": ", ".join(missing)}
        raise ScopeNotHeld(fault, fields={"scopes": [fault]})


def _with_secret(key: ApiKey, raw: str) -> dict[str, Any]:
    return {**KeySerializer(key).data, "key": raw}


def _record(own: ApiKey, action: Action, key: ApiKey, **detail: Any) -> None:
    audit.record(tenant=own.tenant, actor=own, action=action, target=key, detail=detail)


urlpatterns = [
    path("keys", KeysView.as_view(), name="keys"),
    path("keys/<slug:prefix>", KeyView.as_view(), name="key"),
    path("keys/<slug:prefix>/rotate", KeyRotationView.as_view(), name="key_rotate"),
]
