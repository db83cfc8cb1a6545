"""Which process works on a run, so that a run whose process was killed does not count as running for ever."""

import socket

import dagster as dg
import psutil

PROCESS_TAG = "aps_rag/process"


def mark_process(context: dg.InitResourceContext) -> None:
    """Note on the run which process works on it."""
    if context.instance is not None and context.run_id is not None and context.instance.has_run(context.run_id):
        context.instance.add_run_tags(context.run_id, {PROCESS_TAG: _mark(psutil.Process())})


def end_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark runs as failed whose process on this machine is gone, and free their pools; gives their ids.

    Dagster notices a killed worker of its daemon only where the launcher can look after it, and never a command's.
    """
    ended = []
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING])):
        mark = run.tags.get(PROCESS_TAG)
        if mark is not None and mark.startswith(f"{socket.gethostname()}:") and not _lives(mark):
            instance.report_run_failed(run, "the process of this run is gone; the next run completes its work")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            ended.append(run.run_id)
    return ended


def _mark(process: psutil.Process) -> str:
    return f"{socket.gethostname()}:{process.pid}:{process.create_time():.2f}"


def _lives(mark: str) -> bool:
    try:
        return _mark(psutil.Process(int(mark.split(":")[-2]))) == mark
    except (psutil.Error, ValueError):
        return False
