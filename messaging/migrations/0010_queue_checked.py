"""Indexes for the full reconciler.

It pages through every queued message, so the index of the deadlines gets the id: pages may then end between equal
deadlines. Still an expression, so that no claim goes through it (see 0004).
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("instances", "0006_last_checks"),
        ("messaging", "0009_unacknowledged"),
    ]
    operations = [
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                models.F("id"),
                condition=models.Q(("lease_until__isnull", True), ("status", "sending")),
                name="message_stranded",
            ),
        ),
        migrations.RunSQL(
            "CREATE INDEX message_queue ON messaging_message ((deliver_until AT TIME ZONE 'UTC'), id)"
            " WHERE status = 'queued'; DROP INDEX message_deadline",
            "CREATE INDEX message_deadline ON messaging_message ((deliver_until AT TIME ZONE 'UTC'))"
            " WHERE status = 'queued'; DROP INDEX message_queue",
        ),
    ]
