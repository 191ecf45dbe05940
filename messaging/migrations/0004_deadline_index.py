"""The sweep for passed deadlines. An expression on purpose: a second plain index on deliver_until would tempt the
planner to claim through it and filter (measured: 517 pages instead of 92)."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("messaging", "0003_event_position")]
    operations = [
        migrations.RunSQL(
            "CREATE INDEX message_deadline ON messaging_message ((deliver_until AT TIME ZONE 'UTC'))"
            " WHERE status = 'queued'",
            "DROP INDEX message_deadline",
        )
    ]
