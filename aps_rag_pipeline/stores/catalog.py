"""The pipeline's own memory: records, what was derived from them, cursors, failures. SQLite with a write-ahead log.

Only the pipeline opens it; readers have releases. Every change carries the number of its changeset, so that each stage
finds its work as "everything after the last changeset I applied" and a run that died is completed by the next one.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import zstandard

from aps_rag_pipeline import clock
from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.records import Record, decode_record
from aps_rag_pipeline.stores.home import Home, HomeError
from aps_rag_pipeline.stores.trouble import told

SCHEMA_VERSION = 2
_WAL_ATTEMPTS = 100

_SCHEMA = """
create table feeds (
  feed text primary key, source text not null, cursor blob, config text not null, sequence integer not null,
  access text not null
) without rowid;

create table changesets (
  number integer primary key, created_at text not null, reason text not null, token text not null,
  added integer not null default 0, changed integer not null default 0,
  relabelled integer not null default 0, removed integer not null default 0
);

create table records (
  rid integer primary key, source text not null, feed text not null, id text not null,
  key text not null, unit text not null, title text not null, access text not null,
  created_at text, modified_at text, seen_at text not null,
  content_hash text not null, access_hash text not null, masked integer not null default 0,
  body blob, changeset integer not null, removed integer not null default 0,
  unique (feed, id)
);
create index records_changeset on records (changeset);
create index records_unit on records (feed, unit);
create index records_key on records (key);
create index records_identity on records (source, id);

create table versions (
  rid integer not null, changeset integer not null, content_hash text not null, primary key (rid, changeset)
) without rowid;

create table attachments (rid integer not null, sha256 text not null, primary key (rid, sha256)) without rowid;
create index attachments_sha on attachments (sha256);

create table ocr (
  sha256 text not null, page integer not null, language text not null, engine text not null,
  text text not null, confidence real not null, error text, retry_at text, primary key (sha256, page, language)
) without rowid;

create table passages (
  passage_id text primary key, rid integer not null, ordinal integer not null, kind text not null,
  title text not null, locator text not null, text blob not null, hash text not null
) without rowid;
create index passages_rid on passages (rid);

create table chunks (
  chunk_id text primary key, rid integer not null, passage_id text not null, text blob not null, hash blob not null
) without rowid;
create index chunks_rid on chunks (rid);
create index chunks_hash on chunks (hash);

create table embeddings (model text not null, hash blob not null, vector blob not null, primary key (model, hash))
without rowid;

create table mentions (
  rid integer not null, node_id text not null, type text not null, name text not null, key text,
  primary key (rid, node_id)
) without rowid;
create index mentions_node on mentions (node_id);

create table nodes (
  node_id text primary key, type text not null, name text not null, key text, access text not null,
  changeset integer not null, removed integer not null default 0
) without rowid;
create index nodes_changeset on nodes (changeset);

create table copies (feed text not null, id text not null, unit text not null, primary key (feed, id, unit))
without rowid;

create table asked (rid integer not null, target text not null, primary key (rid, target)) without rowid;
create index asked_target on asked (target);

create table edges (
  edge_id text primary key, rid integer not null, src text not null, relation text not null, dst text not null,
  passage_id text, extractor text not null, confidence real not null,
  changeset integer not null, removed integer not null default 0
) without rowid;
create index edges_rid on edges (rid);
create index edges_changeset on edges (changeset);

create table stages (stage text primary key, version text not null, applied integer not null) without rowid;

create table dead_letters (
  feed text not null, unit text not null, item text not null, place text not null, reason text not null,
  remedy text not null, permanent integer not null, attempts integer not null, record_id text not null,
  first_at text not null, last_at text not null, retry_at text, primary key (feed, unit, item)
) without rowid;

create table ignored (feed text not null, place text not null, reason text not null, primary key (feed, place))
without rowid;

create table held_removals (feed text not null, rid integer not null, primary key (feed, rid)) without rowid;

create table purged (source text not null, feed text not null, id text not null, at text not null,
  unit text not null default '', primary key (feed, id)) without rowid;
"""

#: Statements that bring a catalog of a schema to the next one.
_MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: ("alter table purged add column unit text not null default ''",),
}


class CatalogError(HomeError):
    """The catalog cannot be used."""


class Catalog:
    """An open catalog. One process writes at a time (the home's writer lock); opening creates what is missing."""

    def __init__(self, home: Home, *, timeout_s: float = 30) -> None:
        self._home = home
        try:
            self.connection = sqlite3.connect(home.catalog, timeout=timeout_s, isolation_level=None)
        except sqlite3.DatabaseError as error:
            raise _unusable(home, error) from error
        try:
            self.connection.row_factory = sqlite3.Row
            self._refuse_strange()  # before anything is written to it
            self._keep_a_log()
            # A release must never be ahead of the catalog that it was cut from, not even after a power failure.
            self.connection.execute("pragma synchronous = full")
            self.connection.execute("pragma cache_size = -65536")
            self.connection.execute("pragma temp_store = memory")
            self._migrate()
        except sqlite3.DatabaseError as error:
            self.connection.close()
            raise _unusable(home, error) from error
        except CatalogError:
            self.connection.close()
            raise

    def _refuse_strange(self) -> None:
        """A catalog of a later version, or an empty one where indexes are, whose record numbers it would give again."""
        found = self._version()
        if found > SCHEMA_VERSION:
            raise CatalogError(
                f"{self._home.catalog}: has schema {found}, this version reads {SCHEMA_VERSION}; use the version that "
                "wrote it"
            )
        if found == 0 and self._home.lance.is_dir() and any(self._home.lance.iterdir()):
            raise CatalogError(
                f"{self._home.catalog}: is empty or missing, but the home holds indexes made from one; restore a "
                "backup with `aps-rag restore`, or move the home away and let `aps-rag sync` build it anew"
            )

    def _keep_a_log(self) -> None:
        """Switch a new catalog to write-ahead logging; others may be doing the same at this moment."""
        for attempt in range(_WAL_ATTEMPTS):
            try:
                self.connection.execute("pragma journal_mode = wal")
                return
            except sqlite3.OperationalError:  # SQLite does not wait for this lock by itself
                if attempt == _WAL_ATTEMPTS - 1:
                    raise
                time.sleep(0.1)

    def _version(self) -> int:
        return int(self.connection.execute("pragma user_version").fetchone()[0])

    def _migrate(self) -> None:
        if self._version() == SCHEMA_VERSION:
            return
        with self.transaction():
            found = self._version()  # another process may have been first
            if found == 0:
                statements = [statement for statement in _SCHEMA.split(";\n") if statement.strip()]
            else:
                statements = [each for number in range(found, SCHEMA_VERSION) for each in _MIGRATIONS[number]]
            for statement in statements:
                self.connection.execute(statement)
            self.connection.execute(f"pragma user_version = {SCHEMA_VERSION}")

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; the write lock is taken at the start."""
        self.connection.execute("begin immediate")
        try:
            yield self.connection
            passing("catalog.commit.before")
            self.connection.execute("commit")
            passing("catalog.commit.after")
        except BaseException:
            if self.connection.in_transaction:  # on a full disk SQLite may have rolled back by itself
                self.connection.execute("rollback")
            raise

    def rows(self, sql: str, values: Iterable[Any] | dict[str, Any] = ()) -> list[sqlite3.Row]:
        bound = values if isinstance(values, dict) else tuple(values)
        return self.connection.execute(sql, bound).fetchall()

    def value(self, sql: str, values: Iterable[Any] = ()) -> Any:
        row = self.connection.execute(sql, tuple(values)).fetchone()
        return None if row is None else row[0]

    # changesets and stages

    def token(self) -> str:
        """What tells the newest changeset from another that had the same number before a backup was restored."""
        return str(self.value("select token from changesets order by number desc limit 1") or "")

    def changeset(self) -> int:
        """The newest changeset; 0 before the first."""
        return int(self.value("select coalesce(max(number), 0) from changesets"))

    def new_changeset(self, reason: str) -> int:
        """Open a changeset inside the running transaction and give its number."""
        cursor = self.connection.execute(
            "insert into changesets (created_at, reason, token) values (?, ?, ?)",
            (iso(clock.now()), reason, uuid.uuid4().hex),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def applied(self, stage: str, version: str) -> int:
        """The last changeset a stage applied; 0 when it ran in another version or never."""
        found = self.value("select applied from stages where stage = ? and version = ?", (stage, version))
        return int(found or 0)

    def set_applied(self, stage: str, version: str, changeset: int) -> None:
        self.connection.execute("insert or replace into stages values (?, ?, ?)", (stage, version, changeset))

    def body(self, rid: int) -> Record:
        """A live record as its source gave it."""
        data = self.value("select body from records where rid = ?", (rid,))
        return decode_record(unpack(data))


def _unusable(home: Home, error: sqlite3.DatabaseError) -> CatalogError:
    help_ = told(error) or f"{error}; check the disk, or restore a backup with `aps-rag restore`"
    return CatalogError(f"{home.catalog}: {help_}")


_compressor = zstandard.ZstdCompressor(level=3)
_decompressor = zstandard.ZstdDecompressor()


def pack(data: bytes) -> bytes:
    return _compressor.compress(data)


def unpack(data: bytes) -> bytes:
    return _decompressor.decompress(data)


def pack_json(value: Any) -> bytes:
    return pack(msgspec.json.encode(value, order="deterministic"))


def unpack_json(data: bytes | None) -> Any:
    return None if data is None else msgspec.json.decode(unpack(data))


def iso(moment: datetime | None) -> str | None:
    """A time as the catalog stores it: ISO 8601, UTC."""
    return None if moment is None else moment.astimezone(UTC).isoformat()


def from_iso(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def marks(values: Iterable[Any]) -> str:
    """Placeholders for an SQL `in (...)`."""
    return ", ".join("?" for _ in values)
