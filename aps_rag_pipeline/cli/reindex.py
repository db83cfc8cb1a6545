"""`aps-rag reindex`: another embedding model or another chunking, while the release in use goes on serving."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aps_rag_pipeline.cli.common import EXIT_INTERRUPTED, ConfigOption, JsonOption, fail, print_json

if TYPE_CHECKING:
    from aps_rag_pipeline.sync.reindex import Estimate, Target
    from aps_rag_pipeline.sync.workspace import Workspace


def reindex(
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Folder, wheel or hub name; what facility.yaml names when left out."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not estimate and ask.")] = False,
    estimate_only: Annotated[bool, typer.Option("--estimate", help="Say what it takes; change nothing.")] = False,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Embed everything by another model, or in other chunks, beside normal work; then switch in one release.

    Syncs go on with the old model meanwhile. A run that was stopped is gone on with by running it again.
    """
    from aps_rag_pipeline.progress import terminal_progress
    from aps_rag_pipeline.settings_file import settings_path
    from aps_rag_pipeline.sync.reindex import aim, estimate, is_done, open_preparation

    target = aim(settings_path(config_file), model)
    with open_preparation(target, terminal_progress(), alone=not estimate_only) as workspace:
        if is_done(workspace.catalog, target):
            values = {"state": "nothing to do", "model": target.model.description.name}
            _tell(as_json, values, _nothing(workspace, target))
            return
        if estimate_only:
            found = estimate(workspace, target)
            _tell(as_json, {"state": "estimate", **asdict(found)}, _described(found))
            return
        if not yes:
            said = _described(estimate(workspace, target))
            typer.confirm(f"{said}\nBegin? The release in use serves until it is done", abort=True, err=True)
        try:
            _run(workspace, target, as_json)
        except KeyboardInterrupt:
            raise fail("stopped; run it again to go on where it stopped", EXIT_INTERRUPTED) from None


def _run(workspace: Workspace, target: Target, as_json: bool) -> None:
    from aps_rag_pipeline.sync.reindex import prepare, switch

    start = time.monotonic()
    embedded = prepare(workspace, target)
    prepared = time.monotonic()
    release = switch(workspace, target)[-1].counts.get("number")
    done = {
        "state": "switched",
        "model": target.model.description.name,
        "embedded": embedded,
        "release": release,
        "prepare_s": round(prepared - start, 1),
        "switch_s": round(time.monotonic() - prepared, 1),
    }
    said = f"release {release} is served" if release else "the release was there already"
    _tell(as_json, done, f"{embedded:,} texts embedded; {said} (the switch took {done['switch_s']} s)")


def _described(found: Estimate) -> str:
    about = "" if found.records_looked_at == found.records else "about "
    counts = f"{found.chunks:,} chunks of {found.records:,} records, {found.ready:,} embedded already"
    lines = [f"{found.model}: {about}{counts}"]
    if found.chunks_per_s:
        rate = f"{found.chunks_per_s:,.{0 if found.chunks_per_s >= 10 else 1}f} chunks/s here"
        measured = f"{found.backend}, measured by {found.measured_chunks:,} chunks of all lengths"
        lines.append(f"{rate} ({measured}): {found.minutes:,.1f} minutes")
    lines.append(f"{found.disk_mb:,.0f} MB more on disk until the old release is collected")
    return "\n".join(lines)


def _nothing(workspace: Workspace, target: Target) -> str:
    from aps_rag_pipeline.sync.preparation import read_preparation

    said = f"nothing to do: the newest release has the vectors of {target.model.description.name}, in these chunks"
    stopped = read_preparation(workspace.home)
    if stopped is None or stopped.fingerprint == target.fingerprint:
        return said
    return f"{said}\nvectors of {stopped.model} are half prepared: aps-rag reindex --model {stopped.model}"


def _tell(as_json: bool, values: dict[str, Any], text: str) -> None:
    if as_json:
        print_json(values)
    else:
        typer.echo(text)
