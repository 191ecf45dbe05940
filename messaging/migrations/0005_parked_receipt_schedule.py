"""When to look at a parked receipt again: those of other senders' messages would else be looked at all the time."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("messaging", "0004_deadline_index")]
    operations = [
        migrations.AddField(
            model_name="parkedreceipt",
            name="next_look_at",
            field=models.DateTimeField(default=django.utils.timezone.now),
            preserve_default=False,
        ),
        migrations.AddIndex(
            model_name="parkedreceipt",
            index=models.Index(models.F("next_look_at"), name="parked_receipt_due"),
        ),
    ]
