"""The ASGI door: HTTP now, sockets beside it when the desk needs them."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "pilot.settings")

application = get_asgi_application()
