"""`aps-rag failures`: what could not be read, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aps_rag_pipeline.cli.common import (
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    ConfigOption,
    JsonOption,
    console,
    fail,
    load_settings,
    plain,
    print_json,
    table,
)

if TYPE_CHECKING:
    from pathlib import Path

    from aps_rag_pipeline.sync.letters import Letter
    from aps_rag_pipeline.sync.workspace import Workspace

app = typer.Typer()

IdsArgument = Annotated[list[str] | None, typer.Argument(help="Ids as `aps-rag failures` shows them.")]
FeedOption = Annotated[str | None, typer.Option(help="Only this feed.")]
AllOption = Annotated[bool, typer.Option("--all", help="All of them, or all of --feed.")]


@app.callback(invoke_without_command=True)
def listing(
    context: typer.Context, feed: FeedOption = None, config_file: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Items that could not be read: where, why, and what would help. They are tried again by themselves."""
    if context.invoked_subcommand is not None:
        return
    from aps_rag_pipeline.sync.letters import letters

    with _opened(config_file) as workspace:
        found = letters(workspace.catalog, feed)
    if as_json:
        print_json([_values(letter) for letter in found])
        return
    if found:
        shown = table("id", "feed", "place", "reason", "what would help", "tries", "next try")
        for letter in found:
            told = (letter.place, letter.reason, letter.remedy)
            shown.add_row(letter.id, letter.feed, *told, letter.attempts, _when(letter))
        console().print(shown)
    typer.echo(f"{len(found)} failure{'s' if len(found) != 1 else ''}")


@app.command("explain")
def explain(ids: IdsArgument = None, config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Everything that is known of these failures."""
    from aps_rag_pipeline.sync.letters import find

    with _opened(config_file) as workspace, _known_ids():
        found = find(workspace.catalog, _some(ids))
    if as_json:
        print_json([_values(letter) for letter in found])
        return
    for letter in found:
        facts = {
            "id": letter.id,
            "feed": letter.feed,
            "where": letter.place,
            "unit": letter.unit if letter.unit != letter.place else "",
            "reason": letter.reason,
            "what would help": letter.remedy,
            "first failed": letter.first_at or "",
            "last failed": letter.last_at or "",
            "tries": str(letter.attempts),
            "next try": _when(letter),
            "record": f"{letter.key}: its last good version is served" if letter.key else "none is served",
        }
        for name, value in facts.items():
            if value:
                console().print(plain(f"{name + ':':17}{value}"), soft_wrap=True)
        typer.echo("")


@app.command("retry")
def retry(
    ids: IdsArgument = None, feed: FeedOption = None, every: AllOption = False, config_file: ConfigOption = None
) -> None:
    """Have the next sync read these items, also those that are not tried by themselves."""
    from aps_rag_pipeline.sync.letters import retry as retry_letters

    count = _change(config_file, ids, feed, every, retry_letters, "retry failures")
    typer.echo(f"{count} will be read by the next sync: aps-rag sync")


@app.command("forget")
def forget(
    ids: IdsArgument = None, feed: FeedOption = None, every: AllOption = False, config_file: ConfigOption = None
) -> None:
    """Drop these failures from the list; what fails again is remembered anew."""
    from aps_rag_pipeline.sync.letters import forget as forget_letters

    count = _change(config_file, ids, feed, every, forget_letters, "forget failures")
    typer.echo(f"forgot {count}")


def _change(
    config_file: Path | None,
    ids: list[str] | None,
    feed: str | None,
    every: bool,
    change: Callable[[Workspace, Iterable[Letter]], None],
    purpose: str,
) -> int:
    from aps_rag_pipeline.stores.lock import WriterLock
    from aps_rag_pipeline.sync.letters import find, letters

    if bool(ids) == every:
        raise fail("name the ids, or --all (with --feed to keep to one feed)", EXIT_USAGE)
    with (
        _opened(config_file) as workspace,
        WriterLock(workspace.home, workspace.settings.limits.lock_timeout_s, purpose),
        _known_ids(),
    ):
        chosen = letters(workspace.catalog, feed) if every else find(workspace.catalog, ids or ())
        change(workspace, chosen)
    return len(chosen)


@contextmanager
def _opened(config_file: Path | None) -> Iterator[Workspace]:
    from aps_rag_pipeline.sync.pipeline import open_workspace

    with open_workspace(load_settings(config_file)) as workspace:
        yield workspace


@contextmanager
def _known_ids() -> Iterator[None]:
    from aps_rag_pipeline.sync.letters import UnknownLetterError

    try:
        yield
    except UnknownLetterError as error:
        raise fail(str(error), EXIT_NOT_FOUND) from error


def _some(ids: list[str] | None) -> list[str]:
    if not ids:
        raise fail("which? name ids as `aps-rag failures` shows them", EXIT_USAGE)
    return ids


def _values(letter: Letter) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(letter)


def _when(letter: Letter) -> str:
    if letter.retry_at is not None:
        return str(letter.retry_at)[:16]
    return "when it changes"
