"""Releases: numbered, consistent views. The read side is all that `query` needs; the write side is in `publishing`."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.stores.home import Home, HomeError
from aps_rag_pipeline.stores.tables import chunks_table
from aps_rag_pipeline.stores.trouble import told

if TYPE_CHECKING:
    from lancedb.table import Table

MANIFEST = "manifest.json"
LEASE = "lease"
#: How the folder of a release begins that is being collected.
GONE = ".gone-"


class NoReleaseError(HomeError):
    """Nothing has been published in this home yet."""


class DamagedReleaseError(HomeError, msgspec.MsgspecError):
    """A release lacks something that its manifest names, or the manifest cannot be read; the message names it."""

    def __init__(self, place: Path, reason: object) -> None:
        super().__init__(f"{place}: {reason}; `aps-rag audit --repair` mends the release or puts another in its place")


class ReleasedModel(msgspec.Struct, frozen=True):
    """The embedding model that the vectors of a release were made with."""

    name: str
    fingerprint: str
    dimensions: int
    max_tokens: int
    query_prefix: str = ""
    passage_prefix: str = ""
    pooling: str = "mean"


class Lag(msgspec.Struct, frozen=True):
    """Seconds from changes in a source to the release that served them first, published `at`.

    `changed` is how many record versions that were, `first_sight` how many of them are measured from when the pipeline
    first met them, since the source does not tell when it changed them or was loaded for the first time. Percentiles
    are by nearest rank.
    """

    at: datetime
    changed: int
    first_sight: int
    median_s: float
    p95_s: float
    worst_s: float


class FeedFreshness(msgspec.Struct, frozen=True):
    """A feed at the moment of publication: its newest change, how long its last changes took, when it was last read
    successfully, and since when changes of it may wait because it, or an item of it, cannot be read."""

    source: str
    feed: str
    records: int
    newest_at: datetime | None = None
    lag: Lag | None = None
    read_at: datetime | None = None
    unserved_since: datetime | None = None


class Manifest(msgspec.Struct, frozen=True):
    number: int
    changeset: int
    published_at: datetime
    facility: str
    time_zone: str
    several_feeds: dict[str, bool]
    tables: dict[str, int]  # Lance table -> pinned version
    model: ReleasedModel
    counts: dict[str, int]
    feeds: list[FeedFreshness] = []
    versions: dict[str, str] = {}  # of stages
    calibrations: dict[str, float] = {}
    marts: list[str] = []
    token: str = ""  # of the changeset, see Catalog.token


class Release:
    """An open release, held by a lease until it is closed: the collector leaves it alone meanwhile."""

    def __init__(self, home: Home, folder: Path, lease: int) -> None:
        self.home = home
        self.folder = folder
        self._lease = lease
        self.manifest = _read(folder / MANIFEST)
        self._tables: dict[str, Table] = {}
        self._connection: Any = None

    @property
    def tantivy(self) -> Path:
        """Folder of the BM25 index.

        Raises:
            DamagedReleaseError: it is not there.
        """
        folder = self.folder / "tantivy"
        if not (folder / "meta.json").is_file():
            raise DamagedReleaseError(folder, "is not there whole")
        return folder

    @property
    def marts(self) -> Path:
        """Folder of `<mart>.parquet`."""
        return self.folder / "marts"

    def table(self, name: str) -> Table:
        """A released Lance table, pinned to the release's version.

        Raises:
            DamagedReleaseError: it is not there, or not in this version.
        """
        if name not in self._tables:
            from aps_rag_pipeline.stores.lance import lancedb

            if self._connection is None:
                self._connection = lancedb().connect(self.home.lance)
            try:
                table = self._connection.open_table(name)
                table.checkout(self.manifest.tables[name])
            except (ValueError, RuntimeError, OSError) as error:
                place = self.home.lance / f"{name}.lance"
                reason = told(error) or f"version {self.manifest.tables[name]} cannot be opened"
                raise DamagedReleaseError(place, reason) from error
            self._tables[name] = table
        return self._tables[name]

    def chunks(self) -> Table:
        """The chunk table of the release's embedding model."""
        return self.table(chunks_table(self.manifest.model.fingerprint))

    def close(self) -> None:
        self._tables.clear()
        self._connection = None
        if self._lease >= 0:
            os.close(self._lease)
            self._lease = -1

    def __enter__(self) -> Release:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def numbers(home: Home) -> list[int]:
    """Numbers of the published releases, oldest first."""
    if not home.releases.is_dir():
        return []
    found = (entry for entry in home.releases.iterdir() if entry.name.isdigit())
    return sorted(int(entry.name) for entry in found if (entry / MANIFEST).is_file())


def folder_of(home: Home, number: int) -> Path:
    return home.releases / f"{number:08d}"


def read_manifest(home: Home, number: int) -> Manifest:
    """Raises:
    FileNotFoundError: there is no such release (any more). Whoever holds the writer lock or a lease is safe from it.
    DamagedReleaseError: it is not what was written.
    """
    return _read(folder_of(home, number) / MANIFEST)


def _read(path: Path) -> Manifest:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedReleaseError(path, f"cannot be read ({error})") from error


def written_at(home: Home) -> float | None:
    """When the newest release was written (seconds since 1970); None before the first."""
    found = numbers(home)
    return (folder_of(home, found[-1]) / MANIFEST).stat().st_mtime if found else None


def latest(home: Home) -> Manifest | None:
    """Manifest of the newest release; None before the first."""
    while found := numbers(home):
        with contextlib.suppress(FileNotFoundError):  # collected between the look and the reading: look again
            return read_manifest(home, found[-1])
    return None


def replaced(home: Home, before: datetime) -> Iterator[int]:
    """Numbers of the releases, oldest first, that a newer one has replaced before that moment or at it."""
    for number, newer in itertools.pairwise(numbers(home)):
        if read_manifest(home, newer).published_at <= before:
            yield number


def gone(home: Home) -> list[Path]:
    """Folders of releases whose collection has begun and not ended."""
    return sorted(home.releases.glob(f"{GONE}*"))


def open_release(home: Home) -> Release:
    """The newest release, under a lease.

    Raises:
        NoReleaseError: nothing has been published.
        HomeError: the release is damaged.
    """
    before = None
    while found := numbers(home):
        folder = folder_of(home, found[-1])
        if folder == before and not (folder / LEASE).exists() and (folder / MANIFEST).exists():
            raise HomeError(f"{folder}: its file `{LEASE}` is missing; create an empty one, readable by all")
        before = folder
        with contextlib.suppress(FileNotFoundError):  # collected between the look and the lease: look again
            lease = os.open(folder / LEASE, os.O_RDONLY)
            try:
                fcntl.flock(lease, fcntl.LOCK_SH)
                if (folder / MANIFEST).is_file():
                    return Release(home, folder, lease)
            except BaseException:
                os.close(lease)
                raise
            os.close(lease)
    raise NoReleaseError(f"{home.root}: nothing has been released yet; run `aps-rag sync`")


def leased(folder: Path) -> bool:
    """Whether a reader holds this release."""
    with _lease_file(folder) as lease:
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def retire(home: Home, number: int, *, whoever_reads: bool = False) -> bool:
    """Make a release one that no reader finds; gives False, and leaves it, when a reader holds it. Needs the writer
    lock. With `whoever_reads` it goes all the same, without waiting.

    The lease is held exclusively until the release is renamed: a reader that takes it then looks whether it still is
    where it was.
    """
    folder = folder_of(home, number)
    with _lease_file(folder) as lease:
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not whoever_reads:
                return False
        passing("collect.lease.after")
        gone = home.releases / f"{GONE}{number:08d}"
        passing("collect.rename.before")
        os.rename(folder, gone)
        passing("collect.rename.after")
    return True


@contextlib.contextmanager
def _lease_file(folder: Path) -> Iterator[int]:
    handle = os.open(folder / LEASE, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        yield handle
    finally:
        os.close(handle)
