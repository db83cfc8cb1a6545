"""Releases: numbered, consistent views. The read side is all that `query` needs; the write side is in `publishing`."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from aps_rag_pipeline.stores.home import Home, HomeError
from aps_rag_pipeline.stores.tables import chunks_table

if TYPE_CHECKING:
    from lancedb.table import Table

MANIFEST = "manifest.json"
LEASE = "lease"


class NoReleaseError(HomeError):
    """Nothing has been published in this home yet."""


class ReleasedModel(msgspec.Struct, frozen=True):
    """The embedding model that the vectors of a release were made with."""

    name: str
    fingerprint: str
    dimensions: int
    max_tokens: int
    query_prefix: str = ""
    passage_prefix: str = ""
    pooling: str = "mean"


class FeedFreshness(msgspec.Struct, frozen=True):
    """How old a feed's newest change was when the release served it."""

    source: str
    feed: str
    records: int
    newest_at: datetime | None = None


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
        self.manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
        self._tables: dict[str, Table] = {}
        self._connection: Any = None

    @property
    def tantivy(self) -> Path:
        """Folder of the BM25 index."""
        return self.folder / "tantivy"

    @property
    def marts(self) -> Path:
        """Folder of `<mart>.parquet`."""
        return self.folder / "marts"

    def table(self, name: str) -> Table:
        """A released Lance table, pinned to the release's version."""
        if name not in self._tables:
            from aps_rag_pipeline.stores.lance import lancedb

            if self._connection is None:
                self._connection = lancedb().connect(self.home.lance)
            table = self._connection.open_table(name)
            table.checkout(self.manifest.tables[name])
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
    return msgspec.json.decode((folder_of(home, number) / MANIFEST).read_bytes(), type=Manifest)


def latest(home: Home) -> Manifest | None:
    found = numbers(home)
    return read_manifest(home, found[-1]) if found else None


def open_release(home: Home) -> Release:
    """The newest release, under a lease.

    Raises:
        NoReleaseError: nothing has been published.
    """
    while found := numbers(home):
        folder = folder_of(home, found[-1])
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


@contextlib.contextmanager
def _lease_file(folder: Path) -> Iterator[int]:
    handle = os.open(folder / LEASE, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        yield handle
    finally:
        os.close(handle)
