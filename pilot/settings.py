"""Every setting of Pilot, read top to bottom. Environment variables are read here and nowhere else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from django.utils.translation import gettext_lazy as _

from pilot import env
from pilot.database import settings_from_url
from pilot.logs import logging_settings
from pilot.navigation import ADMINISTRATION
from pilot.redis import address

BASE_DIR = Path(__file__).resolve().parent.parent

# --- what an operator must decide -------------------------------------------------------------------------

DEBUG = env.boolean("DEBUG", False)
SECRET_KEY = env.text("SECRET_KEY")
ENCRYPTION_KEYS = env.words("ENCRYPTION_KEYS")  # Fernet keys, the newest first; old ones still decrypt
PUBLIC_URL = env.url(
    "PUBLIC_URL", "http://127.0.0.1:8000", schemes=("http", "https")
)  # providers post receipts here
PUBLIC_HOST = urlsplit(PUBLIC_URL).hostname or ""
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", PUBLIC_HOST)
DATABASE_URL = env.url("DATABASE_URL", schemes=("postgres", "postgresql"))
REDIS_URL = env.url("REDIS_URL", schemes=("redis", "rediss", "sentinel"))
DEFAULT_FROM_EMAIL = env.text("DEFAULT_FROM_EMAIL", "pilot@localhost")
EMAIL_URL = env.url("EMAIL_URL", "", schemes=("smtp", "smtps"))
# Who may see /health and /metrics (pilot/operators.py), beside signed-in support staff.
OPS_TOKEN = env.text("OPS_TOKEN", "")
OPS_NETWORKS = env.networks("OPS_NETWORKS", "127.0.0.0/8,::1")
METRICS_INSTANCES = env.integer(
    "METRICS_INSTANCES", 0, most=500
)  # that /metrics names, the longest queues first
# Where the processes of one web service put their counts together; empty: each shows its own.
PROMETHEUS_MULTIPROC_DIR = env.text("PROMETHEUS_MULTIPROC_DIR", "")
LOG_FORMAT = env.text("LOG_FORMAT", "console")
LOG_LEVEL = env.text("LOG_LEVEL", "INFO")

# --- the provider -----------------------------------------------------------------------------------------

EVOLUTION_URL = env.url("EVOLUTION_URL", "", schemes=("http", "https"))
EVOLUTION_API_KEY = env.text("EVOLUTION_API_KEY", "")
META_GRAPH_URL = env.url("META_GRAPH_URL", "https://graph.facebook.com", schemes=("http", "https"))
INSTAGRAM_GRAPH_URL = env.url("INSTAGRAM_GRAPH_URL", "https://graph.instagram.com", schemes=("http", "https"))
META_GRAPH_VERSION = env.text("META_GRAPH_VERSION", "v25.0")
EVOLUTION_INSTANCE_NAME = env.text("EVOLUTION_INSTANCE_NAME", "")  # last resort of the instance selection

# --- sending ----------------------------------------------------------------------------------------------

DEADLINES = {
    "otp": timedelta(seconds=env.integer("DEADLINE_OTP_SECONDS", 120, least=1)),
    "utility": timedelta(seconds=env.integer("DEADLINE_UTILITY_SECONDS", 3600, least=1)),
    "marketing": timedelta(seconds=env.integer("DEADLINE_MARKETING_SECONDS", 4 * 3600, least=1)),
    "session": timedelta(seconds=env.integer("DEADLINE_SESSION_SECONDS", 24 * 3600, least=1)),
}
SCHEDULE_AHEAD = timedelta(days=env.integer("SCHEDULE_AHEAD_DAYS", 30, least=1))
# No more: a lease that ends, and the look-up after it, must fit into the minute after the deadline.
SEND_TIMEOUT_SECONDS = env.integer("SEND_TIMEOUT_SECONDS", 30, least=1, most=30)
# Longer than typing and the longest provider call together. A send that starts later than this is not made.
LEASE = timedelta(seconds=SEND_TIMEOUT_SECONDS + 15)
# How long before the end of a person's 24 hours the last free message may leave: clocks differ.
WINDOW_MARGIN = timedelta(seconds=env.integer("WINDOW_MARGIN_SECONDS", 90, least=0, most=3600))
SENDS_IN_FLIGHT = env.integer("SENDS_IN_FLIGHT", 400, least=1)  # per worker process
# With more open instances than this they share queues. The same for all processes.
OWN_QUEUES_MOST = env.integer("OWN_QUEUES_MOST", 1000)
# A worker that takes nothing for so long, although Redis answers, ends, to be started anew. Its own heartbeat comes
# every 10 s.
WORKER_DEAF = timedelta(seconds=env.integer("WORKER_DEAF_SECONDS", 60, least=30))
QUEUE_REFRESH = timedelta(milliseconds=env.integer("WHATSAPP_QUEUE_WORKER_REFRESH_MS", 60_000, least=100))

# --- alerts -----------------------------------------------------------------------------------------------

PUSHOVER_URL = env.url("PUSHOVER_URL", "https://api.pushover.net", schemes=("http", "https"))
PUSHOVER_TOKEN = env.text("PUSHOVER_TOKEN", "")
PUSHOVER_USER = env.text("PUSHOVER_USER", "")
ALERT_EMAILS = env.words("ALERT_EMAILS")
ALERT_WEBHOOK_URL = env.url("ALERT_WEBHOOK_URL", "", schemes=("http", "https"))
ALERT_WEBHOOK_SECRET = env.signing_key("ALERT_WEBHOOK_SECRET", "")
ALERT_WHATSAPP_INSTANCE = env.text("ALERT_WHATSAPP_INSTANCE", "")  # a tenant's slug/an instance's name
ALERT_QUEUE_LENGTH = env.integer("ALERT_QUEUE_LENGTH", 1000)  # messages on one instance; 0: never
ALERT_OLDEST = timedelta(seconds=env.integer("ALERT_OLDEST_SECONDS", 1800))
ALERT_CHANNELS = {  # each is off until it is configured
    "pushover": "pilot.alerts.pushover.Pushover",
    "email": "pilot.alerts.mail.OperatorMail",
    "webhook": "pilot.alerts.webhook.Webhook",
    "member_email": "accounts.alerting.MemberMail",
    "whatsapp": "messaging.alerting.WhatsApp",
}

# --- what customers' URLs may make us call (pilot/ssrf.py) ------------------------------------------------

OUTBOUND_NETWORKS = env.networks("OUTBOUND_NETWORKS")  # permitted although not public, on any port
OUTBOUND_PORTS = env.ports("OUTBOUND_PORTS", "80,443,8080,8443")

# --- receipts and the health of instances: docs/operating.md says what each is for --------------------------

HEALTHCHECK_SLEEP = timedelta(milliseconds=env.integer("HEALTHCHECK_SLEEP_MS", 120_000))
HEALTHCHECK_RESTARTS_AT_ONCE = env.integer("HEALTHCHECK_RESTARTS_AT_ONCE", 10, least=1, most=100)
ACK_POLL_AFTER = timedelta(seconds=env.integer("ACK_POLL_AFTER_SECONDS", 60, least=1))
ACKS_MISSING_AFTER = timedelta(seconds=env.integer("ACKS_MISSING_AFTER_SECONDS", 180, least=1))
ACKS_MISSING_LEAST = env.integer("ACKS_MISSING_LEAST", 5, least=1)
UNCONFIRMED_LEAST = env.integer("UNCONFIRMED_LEAST", 5, least=1)
UNCONFIRMED_PERCENT = env.integer("UNCONFIRMED_PERCENT", 50, least=1, most=100)
WEBHOOKS_SILENT_AFTER = timedelta(seconds=env.integer("WEBHOOKS_SILENT_AFTER_SECONDS", 300, least=1))
WEBHOOKS_SILENT_LEAST = env.integer("WEBHOOKS_SILENT_LEAST", 3, least=1)
CANARY = env.boolean("CANARY", False)  # of every instance, whatever its own switch says
CANARY_NUMBER = env.phone("CANARY_NUMBER", "")  # E.164; empty: each instance's own
CANARY_EVERY = timedelta(seconds=env.integer("CANARY_EVERY_SECONDS", 3600, least=60))
ACK_POLL_FOR = timedelta(hours=env.integer("ACK_POLL_FOR_HOURS", 24, least=1))

# --- upkeep -----------------------------------------------------------------------------------------------

MESSAGE_RECONCILER_INTERVAL = timedelta(
    milliseconds=env.integer("MESSAGE_RECONCILER_INTERVAL_MS", 3_600_000, least=1000)
)
RECONCILER_ALERT_ABOVE = env.integer(
    "RECONCILER_ALERT_ABOVE", 1000
)  # changes that one run may make unnoticed
# After how many days the daily retention deletes or blanks what; 0 keeps it for ever.
RETENTION_DAYS = {
    name: env.integer(f"RETENTION_{name.upper()}_DAYS", days)
    for name, days in {
        "inbound_calls": 3,  # as they came; a parser's bug can be replayed for so long
        "inbound_calls_in_error": 14,
        "webhook_events": 30,  # what customers were told, with the log of its deliveries
        "webhook_replays": 30,
        "message_contents": 90,  # what was written; a tenant may have a number of its own
        "message_events": 90,  # timelines
        "received_messages": 365,
        "account_events": 30,
        "instance_events": 90,
        "instance_hours": 90,
        "outages": 365,
        "purges": 90,
        "windows": 30,  # when people last wrote, where the provider lets nothing be sent after a day
        "comment_answers": 30,
        "alerts": 90,
        "maintenance_runs": 30,
        "sign_ins": 90,
    }.items()
}

# --- customers' webhooks ----------------------------------------------------------------------------------

WEBHOOKS_IN_FLIGHT = env.integer("WEBHOOKS_IN_FLIGHT", 300, least=1)  # per worker process
WEBHOOK_TIMEOUT_SECONDS = env.integer("WEBHOOK_TIMEOUT_SECONDS", 15, least=1, most=60)
# How long to wait after each attempt that failed; after the last one a delivery has failed.
WEBHOOK_RETRIES = [timedelta(seconds=seconds) for seconds in (5, 300, 1800, 7200, 18_000, 36_000, 36_000)]
WEBHOOK_DISABLED_AFTER = timedelta(hours=env.integer("WEBHOOK_DISABLED_AFTER_HOURS", 24, least=1))
# How long an endpoint that does not answer is left alone: at first, doubled each time, and at most.
WEBHOOK_SHORTEST_PAUSE = timedelta(seconds=15)
WEBHOOK_LONGEST_PAUSE = timedelta(minutes=5)

# --- storage ----------------------------------------------------------------------------------------------

DATABASES = {
    "default": settings_from_url(
        DATABASE_URL,
        pool_size=env.integer("DATABASE_POOL_SIZE", 20, least=1),
        statement_timeout_ms=env.integer("DATABASE_STATEMENT_TIMEOUT_MS", 30_000),
    )
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
_REDIS = address(REDIS_URL)
CACHES = {"default": {"BACKEND": "pilot.caching.Cache", "LOCATION": REDIS_URL}}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [_REDIS.channel_host], "prefix": "pilot"},
    }
}

# --- Django -----------------------------------------------------------------------------------------------

ROOT_URLCONF = "pilot.urls"
ASGI_APPLICATION = "pilot.asgi.application"
WEB_THREADS = env.integer("WEB_THREADS", 16, least=1)  # requests that one web process answers at once
APPEND_SLASH = False  # a redirected POST loses its body
AUTH_USER_MODEL = "accounts.User"
INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin.apps.SimpleAdminConfig",  # pilot/urls.py looks for its pages
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "axes",
    "django_htmx",
    "django_prometheus",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "rest_framework",
    "pilot",
    "accounts",
    "billing",
    "instances",
    "messaging",
    "webhooks",
]
MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "pilot.requests.RequestIdMiddleware",
    "pilot.requests.ApiHeadersMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "axes.middleware.AxesMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# --- who may come in --------------------------------------------------------------------------------------

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
ACCOUNT_ADAPTER = "accounts.adapter.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"  # accounts are made by an owner or by staff, never by sign-up
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
AXES_VERBOSE = False
AXES_FAILURE_LIMIT = env.integer("LOGIN_FAILURE_LIMIT", 10, least=1)
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_USERNAME_CALLABLE = "accounts.adapter.typed_email"
AXES_LOCKOUT_TEMPLATE = "account/locked.html"

# --- HTTP -------------------------------------------------------------------------------------------------

SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PUBLIC_URL.startswith("https://")
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]
SECURE_HSTS_SECONDS = env.integer("HSTS_SECONDS", 0)
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024  # Meta posts up to 3 MB at once
# Requests a second that the API takes of a key, and of all keys of a tenant, and how many at once; 0: no limit.
API_KEY_RATE = env.integer("API_KEY_RATE", 100)
API_KEY_BURST = env.integer("API_KEY_BURST", 200, least=1)
API_TENANT_RATE = env.integer("API_TENANT_RATE", 500)
API_TENANT_BURST = env.integer("API_TENANT_BURST", 1000, least=1)
# How long a request waits for Redis to count it; then its process counts for itself.
RATE_LIMIT_WAIT = timedelta(milliseconds=env.integer("RATE_LIMIT_WAIT_MS", 50, least=1, most=1000))
STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["accounts.api.authentication.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["accounts.api.authentication.HasScope"],
    "DEFAULT_THROTTLE_CLASSES": ["accounts.api.limits.KeyThrottle"],
    "DEFAULT_PARSER_CLASSES": ["pilot.parsing.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "pilot.refusing.api_exception_handler",
    "DEFAULT_METADATA_CLASS": None,
    "URL_FORMAT_OVERRIDE": None,
    "UNAUTHENTICATED_USER": None,
    "DATETIME_FORMAT": "%Y-%m-%dT%H:%M:%S.%fZ",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Pilot API",
    "VERSION": "",  # pilot.schema knows it
    "LICENSE": {"name": "MIT"},
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "pilot.schema.complete",
    ],
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "validatorUrl": None},  # else it asks validator.swagger.io
    "SCHEMA_PATH_PREFIX": "/api/",
    "ENUM_NAME_OVERRIDES": {
        "ButtonKind": "messaging.fields.BUTTON_KINDS",
        "MessageCategory": "messaging.models.Category",
        "OwnCategory": "messaging.api.serializers.OWN_CATEGORIES",
        "InstanceStatus": "instances.models.InstanceStatus",
        "MessageStatus": "messaging.models.Status",
        "WebhookDeliveryStatus": "webhooks.models.DeliveryStatus",
        "WebhookEventType": "webhooks.api.serializers.EVENT_TYPES",
    },
}

# --- language and time ------------------------------------------------------------------------------------

LANGUAGE_CODE = env.text("LANGUAGE_CODE", "pt-br")
LANGUAGES = [("pt-br", _("Brazilian Portuguese")), ("en", _("English"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
FORMAT_MODULE_PATH = ["pilot.formats"]
USE_TZ = True
TIME_ZONE = "UTC"

UNFOLD = ADMINISTRATION

# --- Celery: carries wake-ups only, see ARCHITECTURE.md ----------------------------------------------------

CELERY_BROKER_URL = _REDIS.broker_url
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_TASK_CREATE_MISSING_QUEUES = True  # one queue per instance
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_ETA_TASK_LIMIT = 1000
# A killed task would be a half-sent message; the row lease already covers a worker that vanishes.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_VISIBILITY_TIMEOUT = 900
CELERY_BROKER_TRANSPORT_OPTIONS = _REDIS.broker_options | {
    "visibility_timeout": 900,
    "priority_steps": [0],  # the cost of a wake-up grows with queues x priorities
    "socket_keepalive": True,
    # A Redis that hangs is noticed after ten seconds, and each question to it holds the worker's loop up.
    "socket_timeout": 5,
    "socket_connect_timeout": 5,
    "health_check_interval": 5,
    "global_keyprefix": "pilot:",
}
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "pilot.beat:LeaderScheduler"

LOGGING = logging_settings(level=LOG_LEVEL, json=LOG_FORMAT == "json")

EMAIL_TIMEOUT = 10
if EMAIL_URL:
    _mail = urlsplit(EMAIL_URL)
    EMAIL_HOST, EMAIL_PORT = _mail.hostname, _mail.port or 587
    EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _mail.username or "", _mail.password or ""
    EMAIL_USE_TLS = _mail.scheme == "smtps"
else:
    EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
