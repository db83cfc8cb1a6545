"""The weekly reconciliation: every feed is read as a whole, and what no sync has noticed is put right."""

import dagster as dg

from assets.sources import RECONCILE_TAG
from sensors.jobs import refresh_all

weekly_reconcile = dg.ScheduleDefinition(
    name="weekly_reconcile",
    job=refresh_all,
    cron_schedule="30 3 * * 0",
    tags={RECONCILE_TAG: "true"},
    description="Sunday 03:30: read all feeds anew, whatever their cursors say.",
)
