"""Backup → home, under the home's writer lock.

Everything is copied and compared with its digests beside the home's own contents first; only then are they exchanged.
A restore that is cut off in the exchange leaves its mark: the pipeline refuses the home until it is restored again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.durable import write_through, write_through_all
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.lock import WriterLock
from aps_rag_pipeline.stores.trouble import told
from aps_rag_pipeline.sync.backup import purges
from aps_rag_pipeline.sync.backup.contents import (
    CONTENTS,
    BackupError,
    Contents,
    copy,
    demand_space,
    explained,
    verify,
)

#: What a restore leaves as it finds it: history of runs, the Bolt server, models that were made here.
_KEPT = ("writer.lock", "dagster", "graph", "models")
_REPLACED = ".replaced"
#: How long who writes the catalog without the home's lock is waited for.
_WAIT_S = 30.0


@dataclass
class Restored:
    """`purged` are the keys of records in the backup that had been purged from the home since. They are tombstones, and
    there is no release until the next sync, or `aps-rag purge` with one of them, has removed their traces."""

    contents: Contents
    purged: list[str] = field(default_factory=list)


def restore(backup: Path, home: Home, *, force: bool = False, timeout_s: float = 60) -> Restored:
    """Put a backup in the place of a home.

    Args:
        force: replace what the home holds. Who reads it just now must open it anew.
        timeout_s: how long to wait for a writer of the home.

    Raises:
        BackupError: the backup is damaged, the home holds something, or it cannot be written; it is as it was.
        HomeTakenError: a writer holds the home.
    """
    backup = backup.absolute()
    root = home.root.absolute()
    if backup.is_relative_to(root) or root.is_relative_to(backup):
        raise BackupError(f"{backup}: lies within the home, or around it; move it elsewhere first")
    contents = verify(backup)
    cut_off = home.restoring.exists()
    after = "the home is as it was" if not cut_off else "run restore again once that is mended"
    with explained(home.root, after):
        home.create(restoring=True)
        with WriterLock(home, timeout_s, f"restore {backup}"):
            if not force and (held := _held(home)):
                raise BackupError(f"{home.root}: is not empty (it holds {held}); --force replaces what it holds")
            shutil.rmtree(home.restore_draft, ignore_errors=True)
            demand_space(home.root, contents.size)
            staged = Home(home.restore_draft)
            try:
                _stage(backup, contents, staged)
                purged = purges.carry(home, staged)
                write_through_all(staged.root)
            except BaseException:
                shutil.rmtree(staged.root, ignore_errors=True)
                raise
            with explained(home.root, "run restore again once that is mended"):
                _exchange(home, staged)
    return Restored(contents, purged)


def _held(home: Home) -> str:
    """The first thing of a home that a restore would replace; empty folders are nothing."""
    for path in sorted(home.root.iterdir()):
        if path.name not in (*_KEPT, home.restore_draft.name) and (not path.is_dir() or any(path.iterdir())):
            return path.name
    return ""


def _stage(backup: Path, contents: Contents, staged: Home) -> None:
    staged.root.mkdir(mode=0o700)
    for name, file in contents.files.items():
        if copy(backup / name, staged.root / name, linked=False) != file:
            raise BackupError(f"{str(backup / name)!r}: changed while it was read; run restore again")
    _demand_what_is_told(backup, contents, staged)
    if contents.release is not None:
        _work_from(releases.folder_of(staged, contents.release), staged)


def _demand_what_is_told(backup: Path, contents: Contents, staged: Home) -> None:
    """Raises:
    BackupError: catalog or release are not those that the list of files tells of.
    """
    try:
        with contextlib.closing(sqlite3.connect(staged.catalog)) as catalog:
            schema = catalog.execute("pragma user_version").fetchone()[0]
            sound = catalog.execute("pragma quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        raise BackupError(f"{backup / staged.catalog.name}: {told(error) or error}; use another backup") from error
    if sound != "ok" or schema != contents.schema:
        reason = f"has schema {schema}, not {contents.schema}" if sound == "ok" else f"is damaged ({sound})"
        raise BackupError(f"{backup / staged.catalog.name}: {reason}; use another backup")
    if contents.release is None:
        return
    place = backup / releases.folder_of(staged, contents.release).relative_to(staged.root)
    try:
        manifest = releases.read_manifest(staged, contents.release)
    except releases.DamagedReleaseError as error:
        raise BackupError(f"{place}: its manifest cannot be read; use another backup") from error
    if (manifest.number, manifest.changeset) != (contents.release, contents.released_changeset):
        raise BackupError(f"{place}: is another release than {CONTENTS} tells; use another backup")


def _work_from(released: Path, staged: Home) -> None:
    """The working BM25 index and marts share the files of the release, which never change."""
    for source, target in ((released / "tantivy", staged.tantivy), (released / "marts", staged.marts)):
        target.mkdir(exist_ok=True)
        for path in source.iterdir():
            if path.suffix == ".json":  # names the segments, and is written over
                shutil.copy2(path, target / path.name)
            elif path.suffix != ".lock":
                _link(path, target / path.name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # no hard links here
        shutil.copy2(source, target)


def _exchange(home: Home, staged: Home) -> None:
    """Readers see no release from the first move to the last. Cut off anywhere behind the mark, it is made again by the
    next restore; the catalog, which knows what was purged, is the old one or the new one at every moment."""
    passing("restore.mark.before")
    home.restoring.touch()
    write_through(home.root)
    passing("restore.mark.after")
    _move_out(home, staged)
    passing("restore.catalog.before")
    _write_over(staged.catalog, home.catalog)
    passing("restore.catalog.after")
    names = [path.name for path in staged.root.iterdir() if path.name not in (home.catalog.name, *_KEPT)]
    for name in sorted(names, key=lambda name: name == home.releases.name):
        os.rename(staged.root / name, home.root / name)
        passing("restore.in.after")
    if staged.models.is_dir():
        shutil.copytree(staged.models, home.models, dirs_exist_ok=True)
        write_through_all(home.models)
    write_through(home.root)
    passing("restore.sweep.before")
    shutil.rmtree(home.root / _REPLACED)
    passing("restore.sweep.after")
    shutil.rmtree(staged.root)
    passing("restore.unmark.before")
    home.restoring.unlink()
    passing("restore.unmark.after")
    home.create()


def _move_out(home: Home, staged: Home) -> None:
    """All but the catalog, the release first."""
    old = home.root / _REPLACED
    if old.exists():  # of a restore that was cut off
        shutil.rmtree(old)
    old.mkdir()
    staying = (*_KEPT, home.restoring.name, staged.root.name, _REPLACED)
    found = [path.name for path in home.root.iterdir() if not path.name.startswith(home.catalog.name)]
    for name in sorted(set(found) - set(staying), key=lambda name: (name != home.releases.name, name)):
        os.rename(home.root / name, old / name)
        passing("restore.out.after")


def _write_over(source: Path, target: Path) -> None:
    """Bring a catalog into the file that is there: who has it open, as a sync that still fetches, sees the new one.

    Raises:
        BackupError: it cannot be written; it is as it was.
    """
    try:
        with (
            contextlib.closing(sqlite3.connect(source)) as read,
            contextlib.closing(sqlite3.connect(target, timeout=_WAIT_S)) as written,
        ):
            read.backup(written, progress=_demand_unlocked)
            written.execute("pragma journal_mode = wal")
    except sqlite3.DatabaseError as error:
        if not purges.damaged(error):
            reason = told(error) or error
            raise BackupError(f"{target}: {reason}; run restore again once that is mended") from error
        for suffix in ("-wal", "-shm"):  # of what is no catalog any more
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        passing("restore.damaged.before")
        os.replace(source, target)


def _demand_unlocked(status: int, *_: int) -> None:
    """SQLite tries for ever otherwise."""
    if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raise sqlite3.OperationalError("database is locked by a process that writes it without the home's lock")
