"""Pilot: delivers WhatsApp, Instagram and web-chat messages for businesses."""

from pilot.celery import app as celery_app

__all__ = ["celery_app"]
