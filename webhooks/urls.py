"""Where providers call. Without a trailing slash and with one: a redirected POST loses its body."""

from django.urls import path

from webhooks import inbound, meta

urlpatterns = [
    path("evolution/<str:token>", inbound.receive, name="hook-evolution"),
    path("evolution/<str:token>/", inbound.receive),
    path("evolution/<str:token>/<slug:suffix>", inbound.receive),
    path("evolution/<str:token>/<slug:suffix>/", inbound.receive),
    path("meta/<str:token>", meta.receive, name="hook-meta"),
    path("meta/<str:token>/", meta.receive),
]
