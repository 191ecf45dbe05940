"""Uploading a file once, so that many messages can name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, cast

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import key_of
from accounts.models import Scope
from instances import media
from instances.models import Instance, InstanceStatus
from pilot.api import ApiView, InstantField, QuerySerializer, refusals
from pilot.parsing import read_limited

LARGEST = 16 * 1024 * 1024  # bytes; a larger file is sent by its address


class RawParser(BaseParser):
    """The body as it is, of any type. Raises BodyTooLarge."""

    media_type = "*/*"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, bytes]:
        return {"file": read_limited(stream, LARGEST)}


class UploadQuery(QuerySerializer):
    instance = serializers.CharField(
        max_length=60, help_text="The instance whose messages may name the file."
    )
    filename = serializers.CharField(
        max_length=240, help_text="Its name; WhatsApp goes by the ending, so it must fit the type."
    )


class MediaSerializer(serializers.Serializer[Any]):
    media_id = serializers.CharField(help_text="What `media_id` of a content refers to.")
    mime_type = serializers.CharField(help_text="The type it was uploaded as.")
    size = serializers.IntegerField(help_text="In bytes.")
    expires_at = InstantField(help_text="Until when the provider keeps it.")


class MediaView(ApiView):
    write_scope = Scope.MESSAGES_WRITE
    parser_classes = [RawParser]

    @extend_schema(
        operation_id="upload_media",
        summary="Upload a file",
        description="Uploads the body, with its `Content-Type`, to the instance's provider. The same content is "
        "uploaded once and keeps its `media_id` for about a month.",
        parameters=[
            UploadQuery,
            OpenApiParameter(
                "Content-Type",
                str,
                OpenApiParameter.HEADER,
                required=True,
                description="The file's type, such as `image/png`.",
            ),
        ],
        request={"application/octet-stream": bytes},
        responses={201: MediaSerializer} | refusals(400, 403, 404, 413, 415, 502),
    )
    def post(self, request: Request) -> Response:
        if not request.content_type:
            raise UnsupportedMediaType("")
        query = UploadQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        wanted: dict[str, Any] = query.validated_data
        uploaded = media.upload(
            instance=_instance(request, wanted["instance"]),
            name=wanted["filename"],
            mime_type=request.content_type[:100],
            data=cast(dict[str, bytes], request.data).get("file", b""),
            now=timezone.now(),
        )
        return Response(MediaSerializer(uploaded).data, status=201)


def _instance(request: Request, name: str) -> Instance:
    present = Instance.objects.filter(tenant_id=key_of(request).tenant_id, name=name)
    instance = present.exclude(status=InstanceStatus.REMOVED).select_related("server").first()
    if instance is None:
        raise Http404
    return instance
