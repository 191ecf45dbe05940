"""Every URL of Pilot: includes, and nothing else."""

from django.contrib import admin
from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularSwaggerSplitView

import accounts.api.keys
import accounts.dashboard
import billing.api.usage
import instances.api.urls
import instances.dashboard
import messaging.alert_pages
import messaging.api.urls
import messaging.dashboard
import messaging.queue_pages
import webhooks.api.urls
import webhooks.dashboard
from pilot import errors, metrics, probes
from pilot.schema import SchemaView

admin.autodiscover()  # here, and not in every process that has models

dashboard = [
    *accounts.dashboard.urlpatterns,
    *instances.dashboard.urlpatterns,
    *messaging.dashboard.urlpatterns,
    *webhooks.dashboard.urlpatterns,
    *messaging.alert_pages.urlpatterns,
]

api = [
    *accounts.api.keys.urlpatterns,
    *billing.api.usage.urlpatterns,
    *instances.api.urls.urlpatterns,
    *messaging.api.urls.urlpatterns,
    *webhooks.api.urls.urlpatterns,
    path("schema", SchemaView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="api:schema"), name="docs"),
    re_path(r"", errors.unknown_path),
]

urlpatterns = [
    path("livez", probes.livez),
    path("readyz", probes.readyz),
    path("health", probes.report),
    path("metrics", metrics.page),
    path("api/", include((api, "api"))),
    path("", include((dashboard, "dashboard"))),
    path("ops/", include((messaging.queue_pages.ops_urlpatterns, "ops"))),
    path("accounts/", include("allauth.urls")),
    path("hooks/", include("webhooks.urls")),
    path("language/", include("django.conf.urls.i18n")),
    path("admin/", admin.site.urls),
]

handler400 = errors.bad_request
handler500 = errors.server_error
