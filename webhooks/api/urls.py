"""The webhook API's URLs."""

from django.urls import path

from webhooks.api import views

urlpatterns = [
    path("webhooks", views.WebhooksView.as_view(), name="webhooks"),
    path("webhooks/event-types", views.EventTypesView.as_view(), name="webhook_event_types"),
    path("webhooks/<uuid:endpoint_id>", views.WebhookView.as_view(), name="webhook"),
    path(
        "webhooks/<uuid:endpoint_id>/rotate-secret", views.RotateSecretView.as_view(), name="webhook_rotate"
    ),
    path("webhooks/<uuid:endpoint_id>/test", views.TestView.as_view(), name="webhook_test"),
    path("webhooks/<uuid:endpoint_id>/replay", views.ReplayView.as_view(), name="webhook_replay"),
    path("webhooks/<uuid:endpoint_id>/verify", views.VerifyView.as_view(), name="webhook_verify"),
    path("webhooks/<uuid:endpoint_id>/deliveries", views.DeliveriesView.as_view(), name="webhook_deliveries"),
    path(
        "webhooks/<uuid:endpoint_id>/deliveries/<int:delivery_id>",
        views.DeliveryView.as_view(),
        name="webhook_delivery",
    ),
    path(
        "webhooks/<uuid:endpoint_id>/deliveries/<int:delivery_id>/resend",
        views.ResendView.as_view(),
        name="webhook_resend",
    ),
]
