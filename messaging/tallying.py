"""Counting what became of messages, from the event rows, each exactly once: for /metrics and the queues page.

The place in the stream of events and the counts move on in one transaction, so a process that dies counts nothing
twice. All of a batch is one statement on the server; the table of events is never read as a whole.
"""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction

from messaging.models import FailureCode, MessageEvent, Status
from messaging.status import PROOF
from pilot.models import StreamPlace
from pilot.outbox import numbered

BATCH = 2000
PLACE = f"{MessageEvent._meta.label_lower}.tallied"

# Upper bounds, in seconds. A histogram's tally has the labels (category, index into these), the last for what is above.
BOUNDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 14400.0)
DELIVERED = (Status.DELIVERED, Status.READ, Status.PLAYED)

# A status may be reached without those before it, and a later receipt implies them: the first proof of any kind is
# when a message was sent. `queued` comes back with every retry: the first is when it was accepted. The time until it is
# sent counts from when it was wanted.
_COUNT = """
WITH news AS MATERIALIZED (
    SELECT m.instance_id, m.environment, m.category, m.submitted_at, m.expected_at, e.at, e.kind,
           greatest(m.created_at, m.scheduled_at) AS wanted_at,
           coalesce(e.detail ->> 'code', '') AS code, earlier.queued, earlier.proved, earlier.delivered
    FROM messaging_messageevent e
    JOIN messaging_message m ON m.id = e.message_id
    CROSS JOIN LATERAL (
        SELECT bool_or(p.kind = 'queued') AS queued, bool_or(p.kind = ANY(%(proof)s)) AS proved,
               bool_or(p.kind = ANY(%(delivered)s)) AS delivered
        FROM messaging_messageevent p WHERE p.message_id = e.message_id AND p.applied AND p.id < e.id
    ) AS earlier
    WHERE e.position > %(after)s AND e.position <= %(upto)s
), steps AS MATERIALIZED (
    SELECT news.*, step,
           CASE WHEN code = ANY(%(codes)s) THEN code ELSE 'other' END AS reason,
           greatest(extract(epoch FROM CASE step WHEN 'sent' THEN at - wanted_at ELSE at - submitted_at END), 0)
               AS seconds
    FROM news CROSS JOIN LATERAL (VALUES
        (CASE WHEN kind = 'queued' THEN CASE WHEN queued THEN 'retried' ELSE 'accepted' END END),
        (CASE WHEN kind = ANY(%(proof)s) AND proved IS NOT TRUE THEN 'sent' END),
        (CASE WHEN kind = ANY(%(delivered)s) AND delivered IS NOT TRUE THEN 'delivered' END),
        (CASE WHEN kind IN ('failed', 'cancelled', 'unconfirmed') THEN kind END)
    ) AS step (step) WHERE step IS NOT NULL
), by_hour AS (
    INSERT INTO instances_instancehour (instance_id, hour, accepted, sent, delivered, failed)
    SELECT instance_id, date_trunc('hour', at, 'UTC'), count(*) FILTER (WHERE step = 'accepted'),
           count(*) FILTER (WHERE step = 'sent'), count(*) FILTER (WHERE step = 'delivered'),
           count(*) FILTER (WHERE step = 'failed')
    FROM steps WHERE step IN ('accepted', 'sent', 'delivered', 'failed') GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (instance_id, hour) DO UPDATE SET
        accepted = instances_instancehour.accepted + excluded.accepted,
        sent = instances_instancehour.sent + excluded.sent,
        delivered = instances_instancehour.delivered + excluded.delivered,
        failed = instances_instancehour.failed + excluded.failed
), added AS (
    SELECT 'messages_' || step AS name, ARRAY[environment, category] AS labels, count(*)::float8 AS value
    FROM steps WHERE step <> 'failed' GROUP BY 1, 2
    UNION ALL
    SELECT 'messages_failed', ARRAY[environment, category, reason], count(*) FROM steps WHERE step = 'failed' GROUP BY 2
    UNION ALL
    SELECT 'seconds_to_' || step, ARRAY[category, (width_bucket(seconds, %(bounds)s::numeric[]))::text], count(*)
    FROM steps WHERE step IN ('sent', 'delivered') GROUP BY 1, 2
    UNION ALL
    SELECT 'seconds_to_' || step || '_sum', ARRAY[category], sum(seconds) FROM steps WHERE step IN ('sent', 'delivered')
    GROUP BY 1, 2
    UNION ALL
    SELECT 'forecast_error', ARRAY[CASE WHEN at > expected_at THEN 'late' ELSE 'early' END,
           (width_bucket(abs(extract(epoch FROM at - expected_at)), %(bounds)s::numeric[]))::text], count(*)
    FROM steps WHERE step = 'sent' AND expected_at IS NOT NULL GROUP BY 2
    UNION ALL
    SELECT 'forecast_error_sum', ARRAY[CASE WHEN at > expected_at THEN 'late' ELSE 'early' END],
           sum(abs(extract(epoch FROM at - expected_at)))
    FROM steps WHERE step = 'sent' AND expected_at IS NOT NULL GROUP BY 2
)
INSERT INTO pilot_tally (name, labels, value) SELECT * FROM added ORDER BY name, labels
ON CONFLICT (name, labels) DO UPDATE SET value = pilot_tally.value + excluded.value
"""


def tally() -> int:
    """Counts the next events that have a position, at most BATCH. Returns how many; 0 also while somebody else does."""
    StreamPlace.objects.get_or_create(pk=PLACE)
    with transaction.atomic():
        place = StreamPlace.objects.select_for_update(skip_locked=True).filter(pk=PLACE).first()
        upto = min(place.position + BATCH, numbered(MessageEvent)) if place else 0
        if place is None or upto <= place.position:
            return 0
        with connection.cursor() as cursor:
            cursor.execute(_COUNT, _values(place.position, upto))
        StreamPlace.objects.filter(pk=PLACE).update(position=upto)
    return upto - place.position


def _values(after: int, upto: int) -> dict[str, Any]:
    return {
        "after": after,
        "upto": upto,
        "proof": list(PROOF),
        "delivered": list(DELIVERED),
        "codes": FailureCode.values,
        "bounds": list(BOUNDS),
    }
