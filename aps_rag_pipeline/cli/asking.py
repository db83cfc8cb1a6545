"""`aps-rag search`, `ask` and `show`: reading the release."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from aps_rag_pipeline.cli.common import (
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    ConfigOption,
    JsonOption,
    console,
    fail,
    load_settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aps_rag_pipeline.settings import Settings
    from query import Corpus

GroupsOption = Annotated[
    list[str] | None,
    typer.Option("--groups", help="Read as a member of these groups (repeatable); left out, as the home's owner."),
]
SourceOption = Annotated[list[str] | None, typer.Option("--source", help="Only these sources (repeatable).")]
SinceOption = Annotated[str | None, typer.Option(help="Only records created from then on, e.g. 2026-03-01.")]
UntilOption = Annotated[str | None, typer.Option(help="Only records created until then.")]


def _some_text(text: str) -> str:
    if not text.strip():
        raise fail("there is nothing to look for: the text is empty", EXIT_USAGE)
    return text


@contextmanager
def _corpus(settings: Settings, groups: list[str] | None) -> Iterator[Corpus]:
    from query import Corpus

    with Corpus.open(settings.home, None if groups is None else set(groups), shifts=settings.shifts) as corpus:
        yield corpus


def search(
    text: str,
    k: Annotated[int, typer.Option("-k", min=1, help="How many records to show.")] = 10,
    source: SourceOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    mode: Annotated[str, typer.Option(help="hybrid, dense or sparse")] = "hybrid",
    groups: GroupsOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the records that fit a text best."""
    from query.present import render_search, to_json
    from query.results import MODES

    settings = load_settings(config_file)
    chosen = next((known for known in MODES if known == mode), None)
    if chosen is None:
        raise fail(f"no mode {mode!r}; there are: {', '.join(MODES)}", EXIT_USAGE)
    with _corpus(settings, groups) as corpus:
        try:
            result = corpus.search(_some_text(text), k, sources=source, since=since, until=until, mode=chosen)
        except ValueError as error:
            raise fail(str(error), EXIT_USAGE) from error
    if as_json:
        print(to_json(result))
    else:
        console().print(render_search(result, settings.zone))
    if not result.hits:
        raise typer.Exit(EXIT_NOT_FOUND)


def ask(
    text: str,
    source: SourceOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    groups: GroupsOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a question from the records, with citations, or say that they do not answer it."""
    from query.present import render_answer, to_json

    settings = load_settings(config_file)
    with _corpus(settings, groups) as corpus:
        try:
            answer = corpus.ask(_some_text(text), sources=source, since=since, until=until)
        except ValueError as error:
            raise fail(str(error), EXIT_USAGE) from error
    if as_json:
        print(to_json(answer))
    else:
        console().print(render_answer(answer, settings.zone))
    if not answer.answered:
        raise typer.Exit(EXIT_NOT_FOUND)


def show(key: str, groups: GroupsOption = None, config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show a whole record by its citation key, its PV name or its id."""
    from query.lookup import AmbiguousKeyError, RecordNotFoundError
    from query.present import render_record, to_json

    settings = load_settings(config_file)
    with _corpus(settings, groups) as corpus:
        try:
            record = corpus.record(key)
        except (RecordNotFoundError, AmbiguousKeyError) as error:
            raise fail(str(error), EXIT_NOT_FOUND) from error
    if as_json:
        print(to_json(record))
    else:
        console().print(render_record(record, settings.zone))
