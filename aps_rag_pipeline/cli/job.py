"""Running a refresh job in this process, on the home's own Dagster instance, and telling what it did."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.cli.common import EXIT_INTERRUPTED, EXIT_WRONG, plain, table
from aps_rag_pipeline.settings import CONFIG_VARIABLE, DEFAULT_CONFIG, Settings
from aps_rag_pipeline.stores import trouble
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.lock import EXIT_TAKEN

if TYPE_CHECKING:
    import dagster as dg

_INSTANCE = """\
# The Dagster instance of one home. Written once; edit it freely.
telemetry: {enabled: false}
nux: {enabled: false}
storage:
  custom: {module: assets.history, class: History, config: {base_dir: {env: DAGSTER_HOME}}}
concurrency:
  runs: {max_concurrent_runs: 3}
  pools: {default_limit: 1, granularity: op}
run_monitoring: {enabled: true, free_slots_after_run_end_seconds: 60}
run_retries: {enabled: true, max_retries: 1, retry_on_asset_or_op_failure: false}
retention:
  sensor: {purge_after_days: {skipped: 7, success: 90, failure: 90}}
"""


@dataclass
class Outcome:
    """What a run did: counts by step, and what went wrong. `nothing_since` is when the last one ended where none was
    started, because it would have had nothing to do."""

    run_id: str
    ok: bool
    steps: dict[str, dict[str, int]] = field(default_factory=dict)
    failed_checks: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    taken: bool = False
    interrupted: bool = False
    nothing_since: str = ""

    @property
    def exit_code(self) -> int:
        if self.taken:
            return EXIT_TAKEN
        if self.interrupted:
            return EXIT_INTERRUPTED
        return 0 if self.ok and not self.failed_checks else EXIT_WRONG

    @property
    def changed(self) -> int:
        return sum(counts.get("changed", 0) for counts in self.steps.values())

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "changed": self.changed, "exit_code": self.exit_code}

    def render(self) -> Any:
        from rich.console import Group

        shown = table("step", "changed", "counts")
        for name, counts in self.steps.items():
            rest = ", ".join(f"{k.replace('_', ' ')} {v:,}" for k, v in counts.items() if k != "changed" and v)
            shown.add_row(name, str(counts.get("changed", 0)), rest)
        lines = [plain(f"failed: {line}", "red") for line in [*self.failed_checks, *self.errors]]
        lines += [plain(f"held: {line}", "yellow") for line in self.held]
        if self.nothing_since:
            return Group(
                shown, plain(f"changed: 0; nothing has moved since the run of {self.nothing_since}, none was started")
            )
        end = (
            "interrupted; run sync again to go on"
            if self.interrupted
            else "done"
            if self.ok
            else "failed; what was released before is still served"
        )
        return Group(shown, *lines, plain(f"changed: {self.changed}; {end} (run {self.run_id})"))


def prepare_instance(settings: Settings) -> Path:
    """The folder of the home's Dagster instance, made when it is missing; `DAGSTER_HOME` goes before it."""
    folder = Path(os.environ.get("DAGSTER_HOME") or Home(settings.home).create().dagster)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "dagster.yaml").exists():
        (folder / "dagster.yaml").write_text(_INSTANCE)
    os.environ["DAGSTER_HOME"] = str(folder)
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    return folder


def look_first(settings: Settings) -> Outcome | None:
    """The outcome of a full run that would find nothing to do; None when one is to be started."""
    from aps_rag_pipeline.audit.remembered import is_audited, read_last
    from aps_rag_pipeline.stores.lock import HomeTakenError
    from aps_rag_pipeline.sync.settled import still_settled

    home = Home(settings.home)
    if not is_audited(home, read_last(home)):  # a run looks again at what was found wrong, and says so
        return None
    try:
        note = still_settled(settings)
    except HomeTakenError:
        return None
    if note is None:
        return None
    return Outcome(
        "", True, {name: {"changed": 0} for name in note.steps}, nothing_since=note.at.isoformat(timespec="seconds")
    )


def run_job(settings: Settings, config: Path | None, source: str | None, *, reconcile: bool = False) -> Outcome:
    """Run the job of a source, or the full one, to its end."""
    prepare_instance(settings)
    if config is not None:
        os.environ[CONFIG_VARIABLE] = str(config.absolute())
    os.environ.setdefault(CONFIG_VARIABLE, str(Path(DEFAULT_CONFIG).absolute()))

    import warnings

    import dagster as dg

    warnings.simplefilter("ignore", dg.PreviewWarning)
    from aps_rag_pipeline.definitions import defs
    from aps_rag_pipeline.sync import settled
    from assets.processes import end_dead_runs
    from assets.sources import RECONCILE_TAG
    from sensors.jobs import REFRESH_ALL, refresh_name

    job = defs.resolve_job_def(refresh_name(source) if source else REFRESH_ALL)
    tags = {RECONCILE_TAG: "true"} if reconcile else {}
    program = settled.begin(settings)
    with dg.DagsterInstance.get() as instance:
        end_dead_runs(instance)
        result = job.execute_in_process(
            instance=instance,
            raise_on_error=False,
            tags=tags,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
        outcome = _outcome(result)
    if source is None and outcome.exit_code == 0 and not outcome.held:
        settled.note_settled(settings, tuple(outcome.steps), program)
    return outcome


def _outcome(result: dg.ExecuteInProcessResult) -> Outcome:
    from assets.text import HELD_CHECK

    outcome = Outcome(result.run_id, result.success)
    for event in result.get_asset_materialization_events():
        made = event.materialization
        counts = {k: v.value for k, v in made.metadata.items() if isinstance(v.value, int) and not _is_state(k)}
        outcome.steps[made.asset_key.to_user_string()] = counts
    for check in result.get_asset_check_evaluations():
        if not check.passed and check.check_name == HELD_CHECK:
            rows = [record.data for record in getattr(check.metadata.get("held"), "records", [])]
            outcome.held = [f"{row['records']} removals of {row['feed']}; {row['confirm_with']}" for row in rows]
        if not check.passed and check.severity.value == "ERROR":
            reasons = check.metadata.get("failed_feeds")
            rows = [record.data for record in getattr(reasons, "records", [])]
            told = "; ".join(f"{row['feed']}: {row['reason']}" for row in rows) or check.check_name
            outcome.failed_checks.append(f"{check.asset_key.to_user_string()}: {told}")
    for event in result.all_events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            while error is not None and error.cause is not None:
                error = error.cause
            if error is not None and error.cls_name == "DagsterExecutionInterruptedError":
                outcome.interrupted = True
            elif error is not None:
                outcome.errors.append(f"{event.step_key}: {trouble.told(error.message) or error.message.strip()}")
                outcome.taken |= error.cls_name == "HomeTakenError"
    return outcome


def _is_state(name: str) -> bool:
    """Numbers that say how things are, not what this run did."""
    return name in ("changeset", "dimensions", "release_number") or name.startswith(("released_", "dagster/"))
