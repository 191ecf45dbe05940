"""The message API's URLs."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from messaging.api.views import MessageEventsView, MessagesView, MessageView


class MessageIdConverter(StringConverter):
    """What an id may consist of; anything else is unknown without asking the database."""

    regex = r"[A-Za-z0-9._:-]{1,64}"


register_converter(MessageIdConverter, "message_id")

urlpatterns = [
    path("messages", MessagesView.as_view(), name="messages"),
    path("messages/<message_id:message_id>", MessageView.as_view(), name="message"),
    path("messages/<message_id:message_id>/events", MessageEventsView.as_view(), name="message_events"),
]
