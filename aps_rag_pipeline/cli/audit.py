"""`aps-rag audit`: whether everything that a home holds agrees, and mending it where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from aps_rag_pipeline.cli.common import (
    EXIT_WRONG,
    ConfigOption,
    JsonOption,
    console,
    load_settings,
    print_json,
    table,
)

if TYPE_CHECKING:
    from aps_rag_pipeline.audit.findings import Findings


def audit(
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended, and publish a release.")] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also cut every record anew and read every attachment; takes longer.")
    ] = False,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove that catalog, indexes, marts, releases and graph agree; name what does not. Syncs wait meanwhile."""
    from aps_rag_pipeline.audit.remembered import remember
    from aps_rag_pipeline.audit.repair import audit_and_repair
    from aps_rag_pipeline.audit.run import audit as look
    from aps_rag_pipeline.progress import terminal_progress
    from aps_rag_pipeline.stores.lock import WriterLock
    from aps_rag_pipeline.sync.model import configured_model
    from aps_rag_pipeline.sync.pipeline import open_workspace

    settings = load_settings(config_file)
    with (
        open_workspace(settings, terminal_progress()) as workspace,
        WriterLock(workspace.home, settings.limits.lock_timeout_s, "audit"),
    ):
        model = configured_model(settings, workspace.home)
        if repair:
            before, done, left = audit_and_repair(workspace, model, deep=deep)
        else:
            before, done, left = None, [], look(workspace, model, deep=deep)
        remember(workspace.home, left)
    if as_json:
        print_json({**_values(left), "repair": None if before is None else {"before": _values(before), "done": done}})
    else:
        _show(before, done, left)
    if left.counts:
        raise typer.Exit(EXIT_WRONG)


def _values(found: Findings) -> dict[str, Any]:
    from msgspec import to_builtins

    return {
        "clean": not found.counts,
        "counts": dict(sorted(found.counts.items())),
        "findings": to_builtins(found.listed),
        "notices": found.notices,
        "checked": dict(sorted(found.checked.items())),
    }


def _show(before: Findings | None, done: list[str], left: Findings) -> None:
    if before is not None and before.counts:
        _show_findings(before)
        for sentence in done:
            typer.echo(f"repair: {sentence}")
    if left.counts:
        if before is not None:
            typer.echo("\nstill wrong after the repair:")
        _show_findings(left)
    for notice in left.notices:
        typer.echo(f"note: {notice}")
    looked_at = ", ".join(f"{count:,} {name}" for name, count in left.checked.items())
    if left.counts:
        typer.echo(f"{sum(left.counts.values()):,} things are wrong; looked at {looked_at}")
    else:
        typer.echo(f"nothing is wrong; looked at {looked_at}")


def _show_findings(found: Findings) -> None:
    shown = table("kind", "store", "id", "what is wrong", "what helps")
    for each in found.listed:
        shown.add_row(each.kind, each.store, each.id, each.problem, each.remedy)
    console().print(shown)
    for kind, count in sorted(found.counts.items()):
        listed = sum(each.kind == kind for each in found.listed)
        if count > listed:
            typer.echo(f"{count - listed:,} more of {kind}")
