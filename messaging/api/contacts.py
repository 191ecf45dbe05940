"""The API of contacts and opt-ins. A person is known by their number, however it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from django.conf import settings
from django.db import transaction
from django.http import Http404, StreamingHttpResponse
from django.urls import path
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import audit
from accounts.api.authentication import key_of
from accounts.models import Action, ApiKey, Scope
from messaging import contacts, numbers, opt_ins
from messaging.models import Contact, OptIn
from pilot.api import (
    ApiView,
    InstantField,
    PageFilter,
    QuerySerializer,
    StrictSerializer,
    page_of,
    refusals,
    validated,
)
from pilot.parsing import read_limited

NUMBER = OpenApiParameter(
    "number", str, OpenApiParameter.PATH, description="As `+5511999990000`, or as people write it."
)


class OptInSerializer(serializers.Serializer[Any]):
    """A person's consent."""

    granted_at = InstantField(allow_null=True, help_text="When they agreed; null when they never did.")
    revoked_at = InstantField(
        allow_null=True, help_text="When they asked not to be written to; null unless so."
    )
    source = serializers.CharField(  # type: ignore[assignment]
        help_text="Where it came from, such as `checkout`."
    )
    evidence = serializers.CharField(help_text="What proves it, such as the text they agreed to.")


class ContactSerializer(serializers.Serializer[Any]):
    """A person the tenant writes to."""

    number = serializers.CharField(help_text="In E.164.")
    name = serializers.CharField(help_text="Their name, as they or you wrote it; empty when not known.")
    recipient_id = serializers.CharField(help_text="The provider's own id of them; empty until they wrote.")
    created_at = InstantField(help_text="When they became known.")
    opt_in = OptInSerializer(allow_null=True, help_text="Their consent; null while nothing is on record.")


class ContactPageSerializer(serializers.Serializer[Any]):
    contacts = ContactSerializer(many=True, help_text="In the order of their numbers.")
    next_cursor = serializers.CharField(allow_null=True, help_text="For the next page; null on the last one.")


class ContactNameSerializer(StrictSerializer):
    name = serializers.CharField(max_length=120, allow_blank=True, help_text="What to call them.")


class GrantSerializer(StrictSerializer):
    source = serializers.CharField(  # type: ignore[assignment]
        max_length=40, help_text="Where they agreed, such as `checkout`."
    )
    evidence = serializers.CharField(
        max_length=2000, required=False, allow_blank=True, help_text="What proves it."
    )


class RevokeSerializer(QuerySerializer):
    source = serializers.CharField(  # type: ignore[assignment]
        max_length=40, default="api", help_text="Where they asked, such as `telephone`."
    )


class RowFaultSerializer(serializers.Serializer[Any]):
    row = serializers.IntegerField(help_text="1 is the first after the header.")
    field = serializers.CharField(help_text="The column.")
    message = serializers.CharField(help_text="What is wrong.")


class ImportedSerializer(serializers.Serializer[Any]):
    taken = serializers.IntegerField(help_text="Rows that were taken in.")
    refused = RowFaultSerializer(many=True, help_text="The rows that were not, and why.")


class CsvParser(BaseParser):
    """The bytes of a CSV file, under the name `file`. Raises BodyTooLarge."""

    media_type = "text/csv"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> dict[str, bytes]:
        return {"file": read_limited(stream, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)}


class ContactsView(ApiView):
    read_scope = Scope.CONTACTS_READ

    @extend_schema(
        operation_id="list_contacts",
        summary="List contacts",
        description="The people of the tenant; all its projects share them.",
        parameters=[PageFilter],
        responses={200: ContactPageSerializer} | refusals(400, 403),
    )
    def get(self, request: Request) -> Response:
        wanted = validated(PageFilter, request.query_params.dict())
        key = key_of(request)
        rows = Contact.objects.filter(tenant_id=key.tenant_id, number__gt=wanted.get("cursor", ""))
        page, next_cursor = page_of(
            rows.order_by("number"), limit=wanted["limit"], place=lambda contact: contact.number
        )
        known = contacts.consents(key.tenant_id, page)
        shown = [_shown(contact, known.get(contact.number)) for contact in page]
        return Response({"contacts": shown, "next_cursor": next_cursor})


class ContactView(ApiView):
    read_scope = Scope.CONTACTS_READ
    write_scope = Scope.CONTACTS_WRITE

    @extend_schema(
        operation_id="get_contact",
        summary="Get a contact",
        parameters=[NUMBER],
        responses={200: ContactSerializer} | refusals(400, 403, 404),
    )
    def get(self, request: Request, number: str) -> Response:
        return Response(_contact(key_of(request), number))

    @extend_schema(
        operation_id="put_contact",
        summary="Keep a contact",
        parameters=[NUMBER],
        request=ContactNameSerializer,
        responses={200: ContactSerializer} | refusals(400, 403, 413, 415),
    )
    def put(self, request: Request, number: str) -> Response:
        wanted, key = validated(ContactNameSerializer, request.data), key_of(request)
        with transaction.atomic():
            contact = contacts.save(tenant=key.tenant, number=_normalised(number), name=wanted["name"])
            audit.record(tenant=key.tenant, actor=key, action=Action.CONTACT_CHANGED, target=contact)
        return Response(_contact(key, contact.number))


class OptInView(ApiView):
    read_scope = Scope.CONTACTS_READ
    write_scope = Scope.CONTACTS_WRITE

    @extend_schema(
        operation_id="get_opt_in",
        summary="Look up an opt-in",
        parameters=[NUMBER],
        responses={200: OptInSerializer} | refusals(400, 403, 404),
    )
    def get(self, request: Request, number: str) -> Response:
        record = opt_ins.record_of(tenant_id=key_of(request).tenant_id, number=_normalised(number))
        if record is None:
            raise Http404
        return Response(OptInSerializer(record).data)

    @extend_schema(
        operation_id="grant_opt_in",
        summary="Record an opt-in",
        description="The person agreed to be written to. It also ends an earlier opt-out: have them say so.",
        parameters=[NUMBER],
        request=GrantSerializer,
        responses={200: OptInSerializer} | refusals(400, 403, 413, 415),
    )
    def put(self, request: Request, number: str) -> Response:
        wanted, key = validated(GrantSerializer, request.data), key_of(request)
        with transaction.atomic():
            record = opt_ins.grant(
                tenant=key.tenant, number=_normalised(number), now=timezone.now(), **wanted
            )
            _record(key, Action.OPT_IN_GRANTED, record)
        return Response(OptInSerializer(record).data)

    @extend_schema(
        operation_id="revoke_opt_in",
        summary="Record an opt-out",
        description="The person is not written to any more, whatever a key may skip.",
        parameters=[NUMBER, RevokeSerializer],
        responses={200: OptInSerializer} | refusals(400, 403),
    )
    def delete(self, request: Request, number: str) -> Response:
        wanted, key = validated(RevokeSerializer, request.query_params.dict()), key_of(request)
        with transaction.atomic():
            record = opt_ins.revoke(
                tenant=key.tenant, number=_normalised(number), source=wanted["source"], now=timezone.now()
            )
            _record(key, Action.OPT_IN_REVOKED, record)
        return Response(OptInSerializer(record).data)


class ContactImportView(ApiView):
    write_scope = Scope.CONTACTS_WRITE
    parser_classes = (CsvParser,)

    @extend_schema(
        operation_id="import_contacts",
        summary="Import contacts",
        description=f"A CSV file in UTF-8 with the columns {', '.join(contacts.COLUMNS)}; only `number` must be there. "
        f"At most {contacts.MOST_ROWS} rows. Nobody is opted in again who opted out.",
        request={"text/csv": OpenApiTypes.STR},
        responses={200: ImportedSerializer} | refusals(400, 403, 413, 415),
    )
    def post(self, request: Request) -> Response:
        raw: bytes = cast(Mapping[str, Any], request.data).get("file", b"")  # no body, no parser
        imported = contacts.import_file(raw, tenant=key_of(request).tenant, now=timezone.now())
        return Response(ImportedSerializer(imported).data)


class ContactExportView(ApiView):
    read_scope = Scope.CONTACTS_READ

    @extend_schema(
        operation_id="export_contacts",
        summary="Export contacts",
        description="All people of the tenant as a CSV file, in the form that an import takes.",
        responses={(200, "text/csv"): OpenApiTypes.STR} | refusals(403),
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        headers = {"Content-Disposition": 'attachment; filename="contacts.csv"'}
        lines = contacts.export_lines(key_of(request).tenant)
        return StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8", headers=headers)


def _contact(key: ApiKey, number: str) -> dict[str, Any]:
    contact = Contact.objects.filter(tenant_id=key.tenant_id, number=_normalised(number)).first()
    if contact is None:
        raise Http404
    return _shown(contact, contacts.consents(key.tenant_id, [contact]).get(contact.number))


def _shown(contact: Contact, consent: OptIn | None) -> dict[str, Any]:
    contact.opt_in = consent  # type: ignore[attr-defined]
    fields: dict[str, Any] = ContactSerializer(contact).data
    return fields


def _normalised(number: str) -> str:
    return numbers.normalise(number, field="number")


def _record(key: ApiKey, action: Action, record: OptIn) -> None:
    detail = {"source": record.source}
    audit.record(tenant=key.tenant, actor=key, action=action, target=record, detail=detail)


urlpatterns = [
    path("contacts", ContactsView.as_view(), name="contacts"),
    path("contacts/import", ContactImportView.as_view(), name="contacts_import"),
    path("contacts/export", ContactExportView.as_view(), name="contacts_export"),
    path("contacts/<str:number>", ContactView.as_view(), name="contact"),
    path("contacts/<str:number>/opt-in", OptInView.as_view(), name="contact_opt_in"),
]
