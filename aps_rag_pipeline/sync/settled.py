"""Whether a sync has anything to do: what the last one left settled, and whether anything has moved since.

Finding out takes a second; a run that finds nothing takes several, nearly all of them to start Dagster and to write
down that its steps had nothing to do.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from aps_rag_pipeline import clock
from aps_rag_pipeline.content.ocr.engine import engine_version
from aps_rag_pipeline.models import ModelError
from aps_rag_pipeline.settings import Feed, Settings
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.bolt_server import address_for
from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.lock import WriterLock
from aps_rag_pipeline.stores.releases import Manifest
from aps_rag_pipeline.stores.sql_models import load_models
from aps_rag_pipeline.sync import due, scrub, spool, state
from aps_rag_pipeline.sync.fetch import reader
from aps_rag_pipeline.sync.marts import LAYERS
from aps_rag_pipeline.sync.model import configured_model
from aps_rag_pipeline.sync.names import OCR

_FILE = "settled.json"
#: A run is made all the same after so long: Dagster calls what nobody has looked at for eight days stale.
_RUN_EVERY = timedelta(days=7)
#: Where this program lies, and its packages whose files decide what a run makes.
_TOP = Path(__file__).parents[2]
_KINDS = {".py", ".sql", ".yaml"}
_PACKAGES = ("aps_rag_pipeline", "assets", "dbt_like_sql")


class Settled(msgspec.Struct, frozen=True):
    """A full run that ended well: with which program and settings, what it released, and the names of its steps."""

    program: str
    settings: str
    release: int
    token: str
    steps: tuple[str, ...]
    at: datetime


def begin(settings: Settings) -> str:
    """Take back what was noted, since a run begins that may end badly; gives what `note_settled` needs to know of the
    program, whose files may be replaced meanwhile."""
    (Home(settings.home).state / _FILE).unlink(missing_ok=True)
    return _program()


def note_settled(settings: Settings, steps: tuple[str, ...], program: str) -> None:
    """Note that a full run of `program` has just ended, with nothing failed and nothing held back."""
    home = Home(settings.home)
    newest = releases.latest(home)
    if newest is not None:
        note = Settled(program, _digest(settings), newest.number, newest.token, steps, clock.now())
        state.write(home.state / _FILE, note)


def still_settled(settings: Settings) -> Settled | None:
    """The note of the last full run if another would find nothing to do, and all feeds are noted as looked at; None if
    a run is needed, or may be: only files and checkouts are looked at here, and no graph server is asked what it holds.

    Raises:
        HomeTakenError: another process writes the home at this moment.
        HomeError: the home cannot be used.
    """
    home, now = Home(settings.home), clock.now()
    note = state.read(home.state / _FILE, Settled)
    if note is None or not _stands(note, settings, home, now):
        return None
    feeds = [state.read_feed(home, feed.source, feed.name) for feed in settings.feeds]
    if any(_news(settings, home, feed, known, now) for feed, known in zip(settings.feeds, feeds, strict=True)):
        return None
    with WriterLock(home, 0.0, "look"):
        again = [state.read_feed(home, feed.source, feed.name) for feed in settings.feeds]
        if again != feeds or state.read(home.state / _FILE, Settled) != note:  # something was done during the looks
            return None
        for known in feeds:
            known.attempted_at = known.succeeded_at = now
            state.write_feed(home, known)
    return note


def _stands(note: Settled, settings: Settings, home: Home, now: datetime) -> bool:
    """Whether nothing but a feed can give a run something to do."""
    pictures, newest = state.read_pipeline(home).pictures_retry_at, releases.latest(home)
    return (
        newest is not None
        and now - note.at < _RUN_EVERY
        and (note.release, note.token) == (newest.number, newest.token)
        and (note.program, note.settings) == (_program(), _digest(settings))
        and (pictures is None or pictures > now)
        and address_for(settings, home) is None
        and _model(settings, home) == newest.model.fingerprint
        and _is_there(home, newest)
        and _is_tidy(home, newest, now - timedelta(hours=settings.limits.retention_hours))
    )


def _is_tidy(home: Home, newest: Manifest, grace: datetime) -> bool:
    """Whether all is released that was read, by what reads pictures here now, and nothing waits for a collection or for
    the end of a purge."""
    if spool.oldest(home.spool) or releases.gone(home) or tuple(releases.replaced(home, grace)):
        return False
    with Catalog(home) as catalog:
        if catalog.changeset() != newest.changeset or scrub.wanted(catalog):
            return False
        read_by = catalog.value("select version from stages where stage = ?", (OCR,))
    return bool(read_by == (engine_version() or "none"))


def _is_there(home: Home, newest: Manifest) -> bool:
    """Whether no store has gone that a run would make again. What is in them is for the audit to look at."""
    folder = releases.folder_of(home, newest.number)
    files = [home.marts / f"{model.name}.parquet" for model in load_models().values() if model.layer in LAYERS]
    files += [folder / "marts" / f"{name}.parquet" for name in newest.marts]
    files += [place / "meta.json" for place in (home.tantivy, folder / "tantivy")]
    tables = [home.lance / f"{name}.lance" / "_versions" for name in newest.tables]
    return all(file.is_file() for file in files) and all(table.is_dir() for table in tables)


def _news(settings: Settings, home: Home, feed: Feed, known: state.FeedState, now: datetime) -> bool:
    if known.held_removals or due.pressing(home, known, now):
        return True
    try:
        if reader(settings, feed, home.blobs).look_every:
            return True
    except Exception:  # the run notes the failure where people look
        return True
    return bool(due.moved(settings, home, known, feed, now))


def _model(settings: Settings, home: Home) -> str:
    try:
        return configured_model(settings, home).description.fingerprint
    except ModelError:
        return ""


def _digest(settings: Settings) -> str:
    """Secrets are left out: with others the same is read."""
    return hashlib.blake2b(settings.model_dump_json().encode(), digest_size=12).hexdigest()


def _program() -> str:
    """Digest of the state of this program's own files: another version runs once, whatever its number says."""
    made = hashlib.blake2b(digest_size=12)
    for line in _files():
        made.update(line.encode())
    return made.hexdigest()


def _files() -> Iterator[str]:
    for package in _PACKAGES:
        for folder, folders, names in os.walk(_TOP / package):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for path in (Path(folder, name) for name in sorted(names)):
                if path.suffix in _KINDS and path.is_file():  # an editor's lock is a link to nothing
                    found = path.stat()
                    yield f"{path.relative_to(_TOP)}|{found.st_size}|{found.st_mtime_ns}\n"
