"""The instance API's URLs."""

from django.urls import path

from instances.api.media import MediaView
from instances.api.views import InstancesView

urlpatterns = [
    path("instances", InstancesView.as_view(), name="instances"),
    path("media", MediaView.as_view(), name="media"),
]
