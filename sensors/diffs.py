"""Nine diff sensors from one factory: hourly looks, about daily runs."""

import dagster as dg

from aps_rag_pipeline.records import SOURCES
from assets.processes import end_dead_runs
from sensors.jobs import REFRESH_ALL, refresh_name

HOURLY = 3600
_IN_PROGRESS = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def _diff_sensor(source: str) -> dg.SensorDefinition:
    job = refresh_name(source)

    @dg.sensor(
        name=f"{source}_diff",
        job_name=job,
        minimum_interval_seconds=HOURLY,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Launches {job} when {source} moved and a day has passed, for retries, and after failures.",
    )
    def diff(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        from aps_rag_pipeline import clock
        from aps_rag_pipeline.settings import Settings, SettingsError
        from aps_rag_pipeline.sync.due import decide

        end_dead_runs(context.instance)
        for name in (job, REFRESH_ALL):
            if context.instance.get_runs(dg.RunsFilter(job_name=name, statuses=_IN_PROGRESS), limit=1):
                return dg.SkipReason(f"{name} is running")
        try:
            settings = Settings.load()
        except SettingsError as error:
            return dg.SkipReason(str(error))
        newest = next(iter(context.instance.get_runs(dg.RunsFilter(job_name=job), limit=1)), None)
        decision = decide(settings, source, clock.now())
        # No run key: Dagster would skip a state that was seen before, so a reverted edit would never be read.
        if decision.launch:
            return dg.RunRequest(tags={"aps_rag/reason": decision.reason[:250]})
        if newest is not None and newest.status == dg.DagsterRunStatus.FAILURE and settings.feeds_of(source):
            return dg.RunRequest(tags={"aps_rag/reason": "the last run failed"})
        return dg.SkipReason(decision.reason)

    return diff


diff_sensors = [_diff_sensor(source) for source in SOURCES]
