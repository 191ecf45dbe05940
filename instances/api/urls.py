"""The instance API's URLs."""

from django.urls import path

from instances.api import views
from instances.api.media import MediaView

urlpatterns = [
    path("instances", views.InstancesView.as_view(), name="instances"),
    path("instances/<slug:name>", views.InstanceView.as_view(), name="instance"),
    path("instances/<slug:name>/pair", views.PairView.as_view(), name="instance_pair"),
    path("instances/<slug:name>/restart", views.RestartView.as_view(), name="instance_restart"),
    path("instances/<slug:name>/logout", views.LogoutView.as_view(), name="instance_logout"),
    path("instances/<slug:name>/pause", views.PauseView.as_view(), name="instance_pause"),
    path("instances/<slug:name>/resume", views.ResumeView.as_view(), name="instance_resume"),
    path("media", MediaView.as_view(), name="media"),
]
