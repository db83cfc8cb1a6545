"""Home → backup, beside readers and a writer at work and without the writer lock.

The newest release is held by a lease, so everything it pins stays. What may move meanwhile is copied in an order that
keeps the whole right: the state of feeds before the catalog, so that it never says more was applied than was; the
catalog last, by SQLite's own online copy, so that it is never behind the release. Where it is ahead, the stages of the
copy are set back to the release, and the next sync of a restored home completes the changeset.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from aps_rag_pipeline import clock
from aps_rag_pipeline.stores.catalog import SCHEMA_VERSION, Catalog, CatalogError, iso
from aps_rag_pipeline.stores.durable import write_through, write_through_all
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.releases import Manifest, NoReleaseError, Release, open_release
from aps_rag_pipeline.stores.trouble import told
from aps_rag_pipeline.sync import names, state
from aps_rag_pipeline.sync.backup import lance_files
from aps_rag_pipeline.sync.backup.contents import (
    CONTENTS,
    FORMAT,
    BackupError,
    Contents,
    StoredFile,
    copy,
    demand_space,
    digest,
    explained,
    files_below,
)
from aps_rag_pipeline.sync.projection import forget

#: Stages whose result lies outside the catalog and is taken from the release.
_OF_INDEXES = (names.DENSE, names.SPARSE)
_HALF_RESTORED = "is being restored, or that was cut off; wait for it, or run `aps-rag restore` with --force again"


def back_up(home: Home, target: Path, *, facility: str = "", models: bool = False) -> Contents:
    """Write a backup of a home, which may be in use, and verify it.

    Left out are `spool/`, `checkouts/`, `graph/` and `dagster/`: they can be had again or are history of runs.

    Args:
        target: a folder that is not there yet, or empty; it appears under this name when the backup is whole.
        models: with `models/`, the converted form of embedding models, which can be made again.

    Raises:
        BackupError: there is nothing to back up, or the backup cannot be written; nothing is left of it.
        CatalogError: the catalog cannot be read.
    """
    target = target.absolute()
    if not os.access(home.root, os.R_OK | os.X_OK) and home.root.exists():
        raise BackupError(f"{home.root}: this user may not read it; run it as the owner of the home")
    if not home.catalog.is_file():
        raise BackupError(f"{home.root}: has no catalog, so there is nothing to back up; run `aps-rag sync`")
    if home.restoring.exists():
        raise BackupError(f"{home.root}: {_HALF_RESTORED}")
    with (
        explained(target, "nothing is left of the backup"),
        _draft(home, target) as draft,
        contextlib.ExitStack() as stack,
    ):
        release: Release | None = None
        with contextlib.suppress(NoReleaseError):
            release = stack.enter_context(open_release(home))
        demand_space(target.parent, _estimate(home, release, models))
        with _one_home(home):
            contents = _Writing(home, draft, release, models).run(facility)
        os.rename(draft.root, target)
        write_through(target.parent)
    return contents


@contextlib.contextmanager
def _one_home(home: Home) -> Iterator[None]:
    """Demand that no restore has begun while the block ran: it would have been copied half from either home."""
    handle = os.open(home.releases, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield
        if home.restoring.exists() or not _is_still(handle, home.releases):
            raise BackupError(f"{home.root}: was restored while it was copied; run the backup again")
    finally:
        os.close(handle)


@contextlib.contextmanager
def _draft(home: Home, target: Path) -> Iterator[Home]:
    """A folder beside the target that is gone again unless it was renamed."""
    if target.is_relative_to(home.root.absolute()) or home.root.absolute().is_relative_to(target):
        raise BackupError(f"{target}: a backup cannot lie within its home, nor around it; name another place")
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise BackupError(f"{target}: is there already; name a new folder")
    if not target.parent.is_dir():
        raise BackupError(f"{target.parent}: no such folder; make it or name another place")
    draft = target.with_name(f".{target.name}.part")
    draft.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _take(handle, draft, target)
        try:
            for left in draft.iterdir():  # by a backup that died
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            yield Home(draft)
        finally:
            if _is_still(handle, draft):  # it was not renamed, so nobody else can have it
                shutil.rmtree(draft, ignore_errors=True)
    finally:
        os.close(handle)


def _take(handle: int, draft: Path, target: Path) -> None:
    """Lock a draft that is open.

    Raises:
        BackupError: another process has it, or had it and is done with it.
    """
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_still(handle, draft):
            return
    raise BackupError(f"{target}: another process is writing this backup just now; wait for it or name a new folder")


def _is_still(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(folder))
    except FileNotFoundError:
        return False


def _estimate(home: Home, release: Release | None, models: bool) -> int:
    folders = [home.blobs.root, home.state, *([home.models] if models else [])]
    files = [path for folder in folders for path in files_below(folder)]
    files += [path for path in home.root.glob("catalog.sqlite*")]
    if release is not None:
        files += files_below(release.folder)
        for name, version in release.manifest.tables.items():
            files += lance_files.of_version(home, name, version)
    total = 0
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


class _Writing:
    """One backup on its way into its draft."""

    def __init__(self, home: Home, draft: Home, release: Release | None, models: bool) -> None:
        self.home, self.draft, self.release, self.models = home, draft, release, models
        self.copied: dict[str, StoredFile] = {}

    def run(self, facility: str) -> Contents:
        self._copy_release()
        for path in files_below(self.home.state):
            if not path.name.startswith((".", "projection")):  # the Bolt server is not in the backup
                self._copy(path, missing_ok=True)
        for path in self.home.marts.glob("[!.]*.parquet") if self.release else ():
            if path.stem not in self._manifest.marts:  # the others are in the release
                self._copy(path)
        self._copy_blobs()
        if self.models:
            for path in files_below(self.home.models):
                self._copy(path)
        self._copy_catalog()
        self._copy_blobs()
        with Catalog(self.draft) as catalog:
            self._demand_that_all_is_there(catalog)
            self._level(catalog)
            values = {
                "changeset": catalog.changeset(),
                "records": int(catalog.value("select count(*) from records where removed = 0")),
                "missing_blobs": self._missing_blobs(catalog),
            }
        _close_log(self.draft.catalog)
        contents = Contents(
            format=FORMAT, made_at=clock.now(), facility=facility, schema=SCHEMA_VERSION, models=self.models,
            release=self._manifest.number if self.release else None,
            released_changeset=self._manifest.changeset if self.release else 0,
            files=self._verified(), **values,
        )  # fmt: skip
        (self.draft.root / CONTENTS).write_bytes(msgspec.json.format(msgspec.json.encode(contents)))
        write_through_all(self.draft.root)
        return contents

    @property
    def _manifest(self) -> Manifest:
        assert self.release is not None
        return self.release.manifest

    def _copy(self, path: Path, *, missing_ok: bool = False) -> None:
        name = path.relative_to(self.home.root).as_posix()
        try:
            self.copied[name] = copy(path, self.draft.root / name)
        except FileNotFoundError:
            (self.draft.root / name).unlink(missing_ok=True)
            if not missing_ok:
                raise BackupError(f"{path}: went away while it was copied; run the backup again") from None

    def _copy_release(self) -> None:
        if self.release is None:
            return
        for path in files_below(self.release.folder):
            self._copy(path)
        for name, version in self._manifest.tables.items():
            for path in lance_files.of_version(self.home, name, version):
                self._copy(path)

    def _copy_blobs(self) -> None:
        """Those that are not here yet; the collector may take one that no record shows any more."""
        for sha256 in self.home.blobs:
            if sha256 not in self.draft.blobs:
                self._copy(self.home.blobs.path(sha256), missing_ok=True)

    def _copy_catalog(self) -> None:
        try:
            with (
                contextlib.closing(sqlite3.connect(f"{self.home.catalog.as_uri()}?mode=rw", uri=True)) as source,
                contextlib.closing(sqlite3.connect(self.draft.catalog)) as target,
            ):
                source.backup(target)  # in one step: one state, whoever writes meanwhile
        except sqlite3.DatabaseError as error:
            raise CatalogError(f"{self.home.catalog}: {told(error) or error}") from error

    def _demand_that_all_is_there(self, catalog: Catalog) -> None:
        """A purge takes releases away whoever holds them, and its record must not live on in a backup."""
        if self.release is None:
            return
        purged = catalog.value("select 1 from purged where at > ?", (iso(self._manifest.published_at),))
        if purged or not self.release.folder.is_dir():
            raise BackupError(
                f"{self.home.root}: a purge is under way, or was cut off; run the backup again after it, or after "
                "`aps-rag sync`"
            )

    def _level(self, catalog: Catalog) -> None:
        """Make the copied catalog say what the copied indexes hold."""
        changeset = self._manifest.changeset if self.release else 0
        if self.release and catalog.changeset() > changeset:
            lance_files.level_graph(self.draft, catalog, changeset)
        with catalog.transaction() as connection:
            connection.execute(
                "delete from stages where stage in (?, ?) or stage like ? || ':%'", (*_OF_INDEXES, names.MARTS)
            )
            if self.release is None:
                connection.execute("delete from stages where stage = ?", (names.GRAPH,))
            for stage, version in self._manifest.versions.items() if self.release else ():
                if stage in _OF_INDEXES or stage.startswith(f"{names.MARTS}:"):
                    catalog.set_applied(stage, version, changeset)
            forget(catalog)  # the Bolt server is not in the backup
        before = state.read_pipeline(self.draft)
        before.applied, before.released = catalog.changeset(), changeset
        state.write_pipeline(self.draft, before)
        self.copied.pop("state/pipeline.json", None)

    def _missing_blobs(self, catalog: Catalog) -> int:
        rows = catalog.connection.execute("select distinct sha256 from attachments")
        return sum(row["sha256"] not in self.draft.blobs for row in rows)

    def _verified(self) -> dict[str, StoredFile]:
        """Digests of what now lies in the draft, read again, the same as what was read from the home."""
        found = {path.relative_to(self.draft.root).as_posix(): path for path in files_below(self.draft.root)}
        files = {name: digest(path) for name, path in found.items()}
        wrong = [name for name, file in self.copied.items() if files.get(name) != file]
        if wrong:
            raise BackupError(f"{self.draft.root / wrong[0]}: reads otherwise than it was written; check the disk")
        if self.release is not None:
            lance_files.demand_rows(self.draft, self._manifest)
        return files


def _close_log(path: Path) -> None:
    """Leave the catalog as one file, and whole."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = delete")
        found = connection.execute("pragma quick_check(1)").fetchone()[0]
    if found != "ok":
        raise CatalogError(f"the catalog is damaged ({found}); restore a backup of before")
