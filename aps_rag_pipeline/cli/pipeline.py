"""`aps-rag sync`, `ui` and `purge`: running the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aps_rag_pipeline.cli.common import (
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    EXIT_WRONG,
    ConfigOption,
    JsonOption,
    console,
    fail,
    load_settings,
    print_json,
    table,
)

if TYPE_CHECKING:
    from aps_rag_pipeline.settings import Settings


def sync(
    source: Annotated[str | None, typer.Option(help="Only this source; all of them when left out.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change; change nothing.")] = False,
    reconcile: Annotated[bool, typer.Option("--reconcile", help="Read every feed as a whole again.")] = False,
    confirm_removals: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Remove exactly the held set of this digest.")
    ] = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read what moved and publish a release. This is the same Dagster job that the sensors launch, run here; where
    nothing has moved since the last one, none is started."""
    from aps_rag_pipeline.records import SOURCES

    settings = load_settings(config_file)
    if source is not None and source not in SOURCES:
        raise fail(f"no source {source!r}; there are: {', '.join(SOURCES)}", EXIT_USAGE)
    if dry_run:
        _dry_run(settings, source, as_json)
        return
    if confirm_removals is not None:
        _confirm(settings, confirm_removals)
    from aps_rag_pipeline.cli.job import look_first, run_job

    outcome = None if source or reconcile or confirm_removals else look_first(settings)
    if outcome is None:
        outcome = run_job(settings, config_file, source, reconcile=reconcile)
    if as_json:
        print_json(outcome.to_dict())
    else:
        console().print(outcome.render())
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def _confirm(settings: Settings, digest: str) -> None:
    from aps_rag_pipeline.stores.lock import WriterLock
    from aps_rag_pipeline.sync.pipeline import open_workspace
    from aps_rag_pipeline.sync.removals import confirm_removals

    with (
        open_workspace(settings) as workspace,
        WriterLock(workspace.home, settings.limits.lock_timeout_s, "confirm removals"),
    ):
        try:
            gone = confirm_removals(workspace, digest)
        except ValueError as error:
            raise fail(str(error), EXIT_USAGE) from error
    typer.echo(f"confirmed: {gone} records will be gone from the next release", err=True)


def _dry_run(settings: Settings, source: str | None, as_json: bool) -> None:
    from aps_rag_pipeline.progress import terminal_progress
    from aps_rag_pipeline.sync.pipeline import open_workspace
    from aps_rag_pipeline.sync.preview import preview

    feeds = settings.feeds if source is None else settings.feeds_of(source)
    with open_workspace(settings, terminal_progress()) as workspace:
        found = preview(workspace, feeds)
    if as_json:
        print_json(found)
    else:
        shown = table("feed", "would add", "change", "relabel", "remove", "hold", "failures", "")
        for row in found:
            names = ("added", "changed", "relabelled", "removed", "held", "failures")
            shown.add_row(row["feed"], *(str(row[name]) for name in names), row["error"])
        console().print(shown)
    if any(row["error"] for row in found):
        raise typer.Exit(EXIT_WRONG)


def ui(
    port: Annotated[int, typer.Option(help="Port on loopback.")] = 3000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    config_file: ConfigOption = None,
) -> None:
    """The Dagster UI and its daemon on the home's own instance."""
    import os
    import sys
    from pathlib import Path

    from aps_rag_pipeline.cli.job import prepare_instance
    from aps_rag_pipeline.settings import CONFIG_VARIABLE, DEFAULT_CONFIG

    prepare_instance(load_settings(config_file))
    os.environ[CONFIG_VARIABLE] = str((config_file or Path(os.environ.get(CONFIG_VARIABLE, DEFAULT_CONFIG))).absolute())
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    arguments = ["dagster", "dev", "-h", host, "-p", str(port), "-m", "aps_rag_pipeline.definitions"]
    os.execv(sys.executable, [sys.executable, "-m", *arguments])


def purge(
    key: str,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config_file: ConfigOption = None,
) -> None:
    """Remove a record from every store and every old release at once, and keep it out from now on."""
    from aps_rag_pipeline.progress import terminal_progress
    from aps_rag_pipeline.sync import scrub
    from aps_rag_pipeline.sync.pipeline import open_workspace
    from aps_rag_pipeline.sync.purge import UnknownKeyError
    from aps_rag_pipeline.sync.purge import purge as purge_record

    settings = load_settings(config_file)
    if not yes:
        typer.confirm(f"Purge {key} from {settings.home} for good? Readers of old releases lose them", abort=True)
    with open_workspace(settings, terminal_progress()) as workspace:
        try:
            gone = purge_record(workspace, key)
        except UnknownKeyError as error:
            raise fail(str(error), EXIT_NOT_FOUND) from error
        if scrub.wanted(workspace.catalog):
            raise fail(
                f"{key}: is served no more, but another process reads the catalog, whose log still holds its text; run "
                "`aps-rag sync` when that has ended",
                EXIT_WRONG,
            )
    typer.echo(f"purged {gone} record{'s' if gone != 1 else ''}: {key}; it still stands in its source")
