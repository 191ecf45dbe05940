"""How PostgreSQL keeps the hot tables. Measured; the defaults let a claim grow without bound.

The ready index collects dead entries at its head; default autovacuum waits for 20 % of the table and may then skip
the indexes. Hot narrow rows (lanes, turns, usage) get free space in the page, so that their updates stay HOT.
"""

from django.db import migrations

TUNE = """
ALTER TABLE messaging_message SET (
    fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on);
ALTER TABLE messaging_projectturn SET (fillfactor = 50);
ALTER TABLE instances_lane SET (fillfactor = 50);
ALTER TABLE billing_usage SET (fillfactor = 50);
"""
UNDO = """
ALTER TABLE messaging_message RESET (
    fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
    autovacuum_vacuum_cost_delay, vacuum_index_cleanup);
ALTER TABLE messaging_projectturn RESET (fillfactor);
ALTER TABLE instances_lane RESET (fillfactor);
ALTER TABLE billing_usage RESET (fillfactor);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("messaging", "0001_initial"),
        ("instances", "0001_initial"),
        ("billing", "0001_initial"),
    ]
    operations = [migrations.RunSQL(TUNE, UNDO)]
