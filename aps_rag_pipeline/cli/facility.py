"""`aps-rag init` and `aps-rag config check`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aps_rag_pipeline.cli.common import (
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

config = typer.Typer(no_args_is_help=True)


def init(
    path: Annotated[Path, typer.Argument(help="file to write")] = Path("facility.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a commented facility.yaml to fill in."""
    if path.exists() and not force:
        raise fail(f"{path} is there already; --force writes over it", EXIT_USAGE)
    template = files("aps_rag_pipeline") / "facility.template.yaml"
    try:
        path.write_text(template.read_text("utf-8"), "utf-8")
    except OSError as error:
        raise fail(f"{path}: cannot be written ({error.strerror})") from error
    typer.echo(f"wrote {path}; fill in the feeds, then run `aps-rag config check`")


@config.callback()
def _group() -> None:
    """Look at facility.yaml."""


@config.command("check")
def check(config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Say of each feed what was found, or exactly what is wrong. Changes nothing."""
    from aps_rag_pipeline.settings import SettingsError
    from aps_rag_pipeline.sources.base import FeedError, UnreadableError
    from aps_rag_pipeline.stores.home import Home
    from aps_rag_pipeline.sync.fetch import reader

    settings = load_settings(config_file)
    rows = []
    for feed in settings.feeds:
        try:
            found = reader(settings, feed, Home(settings.home).blobs).check()
            rows.append({"feed": feed.name, "source": feed.source, "ok": True, "found": found.detail})
        except (FeedError, SettingsError, UnreadableError) as error:
            rows.append({"feed": feed.name, "source": feed.source, "ok": False, "found": str(error)})
    if as_json:
        print_json({"facility": settings.facility, "home": str(settings.home), "feeds": rows})
    else:
        shown = table("feed", "source", "", "found")
        for row in rows:
            shown.add_row(str(row["feed"]), str(row["source"]), "ok" if row["ok"] else "wrong", str(row["found"]))
        console().print(shown)
        typer.echo(f"home: {settings.home}")
    problems = _problems(settings)
    for problem in problems:
        typer.echo(f"wrong: {problem}", err=True)
    if not rows:
        raise fail("no feed is configured; add one under `feeds`", EXIT_USAGE)
    if problems or any(not row["ok"] for row in rows):
        raise typer.Exit(EXIT_WRONG)


def _problems(settings: Settings) -> list[str]:
    """What is wrong besides the feeds: the home, the embedding model."""
    import os

    from aps_rag_pipeline.models import ModelError, resolve
    from aps_rag_pipeline.models.hashing import PREFIX

    found = []
    above = next(folder for folder in (settings.home, *settings.home.parents) if folder.exists())
    if not os.access(above, os.W_OK):
        found.append(f"home: {above} is not writable; set `home` to a writable folder")
    try:
        if not settings.models.embedding.startswith(PREFIX):
            resolve(settings.models.embedding)
    except ModelError as error:
        found.append(f"models.embedding: {error}")
    return found
