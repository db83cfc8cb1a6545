"""Failures reach people: runs that fail, and feeds that cannot be read."""

import dagster as dg


@dg.run_failure_sensor(
    description="Sends the reason of a failed run to the configured target.",
    default_status=dg.DefaultSensorStatus.STOPPED,
    monitor_all_code_locations=False,
)
def run_failure_alert(context: dg.RunFailureSensorContext) -> None:
    from aps_rag_pipeline.alerts import send
    from aps_rag_pipeline.settings import Settings

    settings = Settings.load()
    run = context.dagster_run
    if send(
        settings.alert, f"{settings.facility}: {run.job_name} failed", f"{context.failure_event.message}\n{run.run_id}"
    ):
        context.log.info(f"told of the failure of {run.run_id}")


@dg.sensor(
    name="feed_outage_alert",
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Tells once per outage which feed cannot be read, since when, and why.",
)
def feed_outage_alert(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    from aps_rag_pipeline.alerts import alert_outages
    from aps_rag_pipeline.settings import Settings

    told = alert_outages(Settings.load())
    return dg.SkipReason(f"told of {', '.join(told)}" if told else "no new outage")
