"""`aps-rag backup` and `restore`: a home as one verified folder, and back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aps_rag_pipeline.cli.common import ConfigOption, JsonOption, load_settings, print_json

if TYPE_CHECKING:
    from aps_rag_pipeline.settings import Settings
    from aps_rag_pipeline.sync.backup import Contents


def backup(
    folder: Annotated[Path, typer.Argument(help="Folder to write; it must not be there yet.")],
    models: Annotated[
        bool, typer.Option("--models", help="With the converted embedding models, which the next sync can make again.")
    ] = False,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Back up the home, also while it is in use: catalog, newest release, attachments, cursors.

    It waits for nobody and nobody waits for it. A sync that is under way is in it as far as it came; the next sync of
    the restored home completes it. Left out are clones (`checkouts/`), the Bolt server's data, the run history and,
    unless asked for, converted models. facility.yaml lies outside the home: keep it with the backup.
    """
    from aps_rag_pipeline.stores.home import Home
    from aps_rag_pipeline.sync.backup import back_up

    settings = load_settings(config_file)
    began = time.monotonic()
    contents = back_up(Home(settings.home), folder, facility=settings.facility, models=models)
    seconds = time.monotonic() - began
    if as_json:
        print_json({**_summary(contents), "folder": str(folder.absolute()), "seconds": round(seconds, 3)})
        return
    typer.echo(f"backed up {settings.home} to {folder}: {_told(contents)}; verified; {seconds:.1f} s")
    if contents.missing_blobs:
        typer.echo(f"{contents.missing_blobs} attachments that the catalog names are not in the home", err=True)


def restore(
    folder: Annotated[Path, typer.Argument(help="What `aps-rag backup` wrote.")],
    home: Annotated[
        Path | None, typer.Option("--home", help="Where to put it; the home of facility.yaml when left out.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what the home holds.")] = False,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a backup in the place of a home, after every file has been compared with its digest.

    Nothing is touched when the backup is damaged or the home is not empty (`--force` replaces it). Readers of a home
    that was replaced must be started anew. The restored release answers at once; the next sync brings what moved since.
    """
    from aps_rag_pipeline.stores.home import Home
    from aps_rag_pipeline.sync.backup import restore as put_back

    settings = None if home is not None else load_settings(config_file)
    place = home if settings is None else settings.home
    assert place is not None
    began = time.monotonic()
    wait = 60.0 if settings is None else settings.limits.lock_timeout_s
    done = put_back(folder, Home(place.absolute()), force=force, timeout_s=wait)
    if settings is not None and done.purged:
        _release_without_them(settings)
    seconds = time.monotonic() - began
    if as_json:
        print_json(
            {
                **_summary(done.contents),
                "home": str(place.absolute()),
                "purged": done.purged,
                "seconds": round(seconds, 3),
            }
        )
    else:
        made = done.contents.made_at.isoformat(timespec="seconds")
        typer.echo(f"restored {place} from {folder}, made {made}: {_told(done.contents)}; {seconds:.1f} s")
        typer.echo("`aps-rag sync` brings what has moved since")
    if done.purged:
        typer.echo(f"purged since this backup, and so from it too: {', '.join(done.purged)}", err=True)
        if settings is None:
            typer.echo("nothing is served before the next `aps-rag sync`, which removes their traces", err=True)


def _release_without_them(settings: Settings) -> None:
    """Remove the traces of what was purged from the home that was replaced, and publish."""
    from aps_rag_pipeline.stores.lock import WriterLock
    from aps_rag_pipeline.sync.pipeline import complete, open_workspace

    wait = settings.limits.lock_timeout_s
    with open_workspace(settings) as workspace, WriterLock(workspace.home, wait, "restore"):
        complete(workspace)


def _summary(contents: Contents) -> dict[str, object]:
    names = ("release", "released_changeset", "changeset", "records", "missing_blobs", "models", "size")
    return {**{name: getattr(contents, name) for name in names}, "files": len(contents.files)}


def _told(contents: Contents) -> str:
    from aps_rag_pipeline.sync.backup.contents import megabytes

    release = "no release yet" if contents.release is None else f"release {contents.release}"
    if contents.changeset > contents.released_changeset:
        release += f" and changeset {contents.changeset} on its way"
    return f"{release}; {contents.records:,} records, {len(contents.files):,} files, {megabytes(contents.size)}"
