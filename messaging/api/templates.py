"""The template API. A template is known by its name within the key's project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from django.urls import path
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import audit
from accounts.api.authentication import key_of
from accounts.models import Action, ApiKey, Scope
from messaging import templates
from messaging.api.serializers import OWN_CATEGORIES, OWN_CONTENT, ButtonSerializer, VariablesField
from messaging.fields import LINE_LIMIT, TEXT_LIMIT
from messaging.models import Category, Template, TemplateStatus, TemplateVersion
from pilot.api import (
    ApiView,
    InstantField,
    PageFilter,
    StrictSerializer,
    bad_cursor,
    page_of,
    refusals,
    validated,
)


class ContentSerializer(StrictSerializer):
    """A text with {{variables}}, or a `content` of another kind."""

    text = serializers.CharField(
        required=False, max_length=TEXT_LIMIT, trim_whitespace=False, help_text="With {{variables}}."
    )
    title = serializers.CharField(
        required=False, max_length=LINE_LIMIT, trim_whitespace=False, help_text="A line above `text`."
    )
    footer = serializers.CharField(
        required=False, max_length=LINE_LIMIT, trim_whitespace=False, help_text="A line below `text`."
    )
    buttons = ButtonSerializer(many=True, required=False, help_text="Up to three buttons under `text`.")
    content = serializers.DictField(
        required=False, help_text="Instead of `text`: an image, a list and so on, by its `type`."
    )
    publish = serializers.BooleanField(required=False, help_text="Whether messages are made from it at once.")


class NewTemplateSerializer(ContentSerializer):
    name = serializers.CharField(
        max_length=80, help_text="What `template` in a message refers to: letters, digits, `-` and `_`."
    )
    category = serializers.ChoiceField(
        OWN_CATEGORIES,
        help_text="What its messages are for; decides how long they may wait.",
    )


class VersionSerializer(serializers.Serializer[Any]):
    """One text of a template. It never changes."""

    number = serializers.IntegerField(help_text="1 is the first.")
    content = serializers.DictField(help_text="The text with its {{variables}}, and its parts.")
    variables = serializers.ListField(child=serializers.CharField(), help_text="The names of its variables.")
    created_at = InstantField(help_text="When it was added.")


class TemplateSerializer(serializers.Serializer[Any]):
    """A template and the version that messages are made from."""

    name = serializers.CharField(help_text="What `template` in a message refers to.")
    category = serializers.ChoiceField(Category.choices, help_text="What its messages are for.")
    status = serializers.ChoiceField(TemplateStatus.choices, help_text="An archived one cannot be sent.")
    current_version = VersionSerializer(
        allow_null=True, help_text="What messages are made from; null before any was published."
    )
    created_at = InstantField(help_text="When it was made.")


class TemplatePageSerializer(serializers.Serializer[Any]):
    templates = TemplateSerializer(many=True, help_text="In the order of their names.")
    next_cursor = serializers.CharField(allow_null=True, help_text="For the next page; null on the last one.")


class TemplateFilter(PageFilter):
    """Which templates."""

    status = serializers.ChoiceField(
        TemplateStatus.choices, required=False, help_text="Only those in this state."
    )


class VersionPageSerializer(serializers.Serializer[Any]):
    versions = VersionSerializer(many=True, help_text="Newest first.")
    next_cursor = serializers.CharField(allow_null=True, help_text="For the next page; null on the last one.")


class PreviewRequestSerializer(StrictSerializer):
    variables = VariablesField(required=False, help_text="A value for each variable, and for nothing else.")
    version = serializers.IntegerField(
        required=False, min_value=1, max_value=1_000_000, help_text="The current version unless given."
    )


class PreviewSerializer(serializers.Serializer[Any]):
    """A message as it would be sent."""

    content = serializers.DictField(help_text="The text and its parts, with the values in their places.")
    length = serializers.IntegerField(help_text="Characters of the text.")
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="What may keep it from being read or delivered."
    )


class TemplatesView(ApiView):
    read_scope = Scope.TEMPLATES_READ
    write_scope = Scope.TEMPLATES_WRITE

    @extend_schema(
        operation_id="list_templates",
        summary="List templates",
        parameters=[TemplateFilter],
        responses={200: TemplatePageSerializer} | refusals(400, 403),
    )
    def get(self, request: Request) -> Response:
        wanted = validated(TemplateFilter, request.query_params.dict())
        rows = _templates(key_of(request)).filter(name__gt=wanted.get("cursor", ""))
        if "status" in wanted:
            rows = rows.filter(status=wanted["status"])
        page, next_cursor = page_of(
            rows.order_by("name"), limit=wanted["limit"], place=lambda template: template.name
        )
        return Response({"templates": TemplateSerializer(page, many=True).data, "next_cursor": next_cursor})

    @extend_schema(
        operation_id="create_template",
        summary="Create a template",
        description="Its first version can be sent at once unless `publish` is false.",
        request=NewTemplateSerializer,
        responses={201: TemplateSerializer} | refusals(400, 403, 409, 413, 415),
    )
    def post(self, request: Request) -> Response:
        wanted = validated(NewTemplateSerializer, request.data)
        key = key_of(request)
        with transaction.atomic():
            template = templates.create(
                project=key.project,
                name=wanted["name"],
                category=wanted["category"],
                content=_content(wanted),
                publish=wanted.get("publish", True),
            )
            audit.record(tenant=key.tenant, actor=key, action=Action.TEMPLATE_CREATED, target=template)
        return Response(TemplateSerializer(template).data, status=201)


class TemplateView(ApiView):
    read_scope = Scope.TEMPLATES_READ

    @extend_schema(
        operation_id="get_template",
        summary="Get a template",
        responses={200: TemplateSerializer} | refusals(403, 404),
    )
    def get(self, request: Request, name: str) -> Response:
        return Response(TemplateSerializer(_template(key_of(request), name)).data)


class TemplateVersionsView(ApiView):
    read_scope = Scope.TEMPLATES_READ
    write_scope = Scope.TEMPLATES_WRITE

    @extend_schema(
        operation_id="list_template_versions",
        summary="List a template's versions",
        parameters=[PageFilter],
        responses={200: VersionPageSerializer} | refusals(400, 403, 404),
    )
    def get(self, request: Request, name: str) -> Response:
        wanted = validated(PageFilter, request.query_params.dict())
        versions = _template(key_of(request), name).versions.order_by("-number")
        if "cursor" in wanted:
            versions = versions.filter(number__lt=_number(wanted["cursor"]))
        page, next_cursor = page_of(versions, limit=wanted["limit"], place=lambda each: str(each.number))
        return Response({"versions": VersionSerializer(page, many=True).data, "next_cursor": next_cursor})

    @extend_schema(
        operation_id="add_template_version",
        summary="Add a version",
        description="Messages are made from it once it is published; those that exist keep the version they have.",
        request=ContentSerializer,
        responses={201: VersionSerializer} | refusals(400, 403, 404, 413, 415),
    )
    def post(self, request: Request, name: str) -> Response:
        wanted, key = validated(ContentSerializer, request.data), key_of(request)
        template = _template(key, name)
        with transaction.atomic():
            version = templates.add_version(
                template, content=_content(wanted), publish=wanted.get("publish", False)
            )
            _record(key, Action.TEMPLATE_CHANGED, template, version)
        return Response(VersionSerializer(version).data, status=201)


class TemplatePublishView(ApiView):
    write_scope = Scope.TEMPLATES_WRITE

    @extend_schema(
        operation_id="publish_template_version",
        summary="Publish a version",
        description="From now on messages are made from it. An earlier version may be published again.",
        request=None,
        responses={200: TemplateSerializer} | refusals(403, 404),
    )
    def post(self, request: Request, name: str, number: int) -> Response:
        key = key_of(request)
        template = _template(key, name)
        with transaction.atomic():
            version = templates.publish(template, number=number)
            _record(key, Action.TEMPLATE_PUBLISHED, template, version)
        return Response(TemplateSerializer(template).data)


class TemplateArchiveView(ApiView):
    write_scope = Scope.TEMPLATES_WRITE

    @extend_schema(
        operation_id="archive_template",
        summary="Archive a template",
        description="It cannot be sent any more; what waits already is still sent. Asking again changes nothing.",
        request=None,
        responses={200: TemplateSerializer} | refusals(403, 404),
    )
    def post(self, request: Request, name: str) -> Response:
        key = key_of(request)
        template = _template(key, name)
        with transaction.atomic():
            if templates.archive(template):
                audit.record(tenant=key.tenant, actor=key, action=Action.TEMPLATE_ARCHIVED, target=template)
        return Response(TemplateSerializer(template).data)


class TemplateRestoreView(ApiView):
    write_scope = Scope.TEMPLATES_WRITE

    @extend_schema(
        operation_id="restore_template",
        summary="Restore an archived template",
        request=None,
        responses={200: TemplateSerializer} | refusals(403, 404),
    )
    def post(self, request: Request, name: str) -> Response:
        key = key_of(request)
        template = _template(key, name)
        with transaction.atomic():
            if templates.restore(template):
                audit.record(tenant=key.tenant, actor=key, action=Action.TEMPLATE_RESTORED, target=template)
        return Response(TemplateSerializer(template).data)


class TemplatePreviewView(ApiView):
    write_scope = Scope.TEMPLATES_READ  # a POST that changes nothing: variables may be long

    @extend_schema(
        operation_id="preview_template",
        summary="Preview a template",
        description="The message that these variables would make, its length, and what may be wrong with it.",
        request=PreviewRequestSerializer,
        responses={200: PreviewSerializer} | refusals(400, 403, 404, 413, 415),
    )
    def post(self, request: Request, name: str) -> Response:
        wanted = validated(PreviewRequestSerializer, request.data)
        template = _template(key_of(request), name)
        shown = templates.preview(
            template, variables=wanted.get("variables", {}), number=wanted.get("version")
        )
        return Response(PreviewSerializer(shown).data)


def _templates(key: ApiKey) -> QuerySet[Template]:
    return Template.objects.filter(project_id=key.project_id).select_related("current_version")


def _template(key: ApiKey, name: str) -> Template:
    template = _templates(key).filter(name=name).first()
    if template is None:
        raise Http404
    return template


def _content(wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    own = {name: wanted[name] for name in OWN_CONTENT if name in wanted}
    if own and "content" in wanted:
        raise ValidationError({"content": [_("Cannot be combined with a text.")]})
    return wanted.get("content") or own


def _number(cursor: str) -> int:
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 9:
        raise bad_cursor()
    return int(cursor)


def _record(key: ApiKey, action: Action, template: Template, version: TemplateVersion) -> None:
    detail = {"version": version.number}
    audit.record(tenant=key.tenant, actor=key, action=action, target=template, detail=detail)


urlpatterns = [
    path("templates", TemplatesView.as_view(), name="templates"),
    path("templates/<slug:name>", TemplateView.as_view(), name="template"),
    path("templates/<slug:name>/versions", TemplateVersionsView.as_view(), name="template_versions"),
    path(
        "templates/<slug:name>/versions/<int:number>/publish",
        TemplatePublishView.as_view(),
        name="template_publish",
    ),
    path("templates/<slug:name>/archive", TemplateArchiveView.as_view(), name="template_archive"),
    path("templates/<slug:name>/restore", TemplateRestoreView.as_view(), name="template_restore"),
    path("templates/<slug:name>/preview", TemplatePreviewView.as_view(), name="template_preview"),
]
