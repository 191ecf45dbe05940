"""The message API's URLs."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from messaging.api import contacts, numbers, templates
from messaging.api.queues import QueuesView
from messaging.api.views import (
    MessageBatchView,
    MessageCancelView,
    MessageEventsView,
    MessagesView,
    MessageView,
    MessageWhyView,
)


class MessageIdConverter(StringConverter):
    """What an id may consist of; anything else is unknown without asking the database."""

    regex = r"[A-Za-z0-9._:-]{1,64}"


register_converter(MessageIdConverter, "message_id")

urlpatterns = [
    path("queues", QueuesView.as_view(), name="queues"),
    *contacts.urlpatterns,
    *numbers.urlpatterns,
    *templates.urlpatterns,
    path("messages", MessagesView.as_view(), name="messages"),
    path("messages/batch", MessageBatchView.as_view(), name="message_batch"),
    path("messages/<message_id:message_id>", MessageView.as_view(), name="message"),
    path("messages/<message_id:message_id>/events", MessageEventsView.as_view(), name="message_events"),
    path("messages/<message_id:message_id>/why", MessageWhyView.as_view(), name="message_why"),
    path("messages/<message_id:message_id>/cancel", MessageCancelView.as_view(), name="message_cancel"),
]
