"""The index of calls that wait collects dead entries at its head: see messaging/0012_event_vacuum.py."""

from django.db import migrations

TUNE = """
ALTER TABLE webhooks_inboundcall SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100000, vacuum_index_cleanup = on)
"""
UNDO = """
ALTER TABLE webhooks_inboundcall RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, vacuum_index_cleanup)
"""


class Migration(migrations.Migration):
    dependencies = [("webhooks", "0003_connection_news")]
    operations = [migrations.RunSQL(TUNE, UNDO)]
