"""A synced home of the small facility, and every kind of damage that an audit has to find in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import tantivy

from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.audit.repair import audit_and_repair
from aps_rag_pipeline.audit.run import audit
from aps_rag_pipeline.content.chunks import text_hash
from aps_rag_pipeline.stores import releases, sparse
from aps_rag_pipeline.stores.catalog import Catalog, pack, pack_json, unpack, unpack_json
from aps_rag_pipeline.stores.tables import chunks_table
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync.collection import tag_of
from aps_rag_pipeline.sync.model import configured_model
from query.corpus import Corpus
from tests.small_facility import Facility

Found = set[tuple[str, str, str]]


def new_facility(root: Path) -> Facility:
    made = Facility(root)
    made.log = {
        f"shift-{n}": {100 * n + i: f"Entry {i}: {trip(100 * n + i)}, see work request {20000 + i}" for i in range(15)}
        for n in range(1, 5)
    }
    made.requests = {
        str(20000 + i): {"title": f"Replace pump P{i}", "description": f"The ion pump P{i} draws high current"}
        for i in range(15)
    }
    for entry in (400, 401):
        made.log["shift-4"][entry] += f" and ![log](/log/attachments/trip{entry}.txt)"
        (root / "log" / "attachments").mkdir(parents=True, exist_ok=True)
        (root / "log" / "attachments" / f"trip{entry}.txt").write_text(f"reflected power {entry} kW at 03:14:15")
    return made.write()


def trip(number: int | str) -> str:
    """What only one entry says."""
    return f"klystron K{number} tripped on reflected power"


@dataclass
class Bench:
    """A facility's home, opened for damage to the record `key`."""

    facility: Facility
    key: str = "BELY:100"

    @property
    def tables(self) -> LanceTables:
        return LanceTables(self.facility.home)

    @property
    def chunks(self) -> Any:
        return self.tables.table(chunks_table(self.model().description.fingerprint))

    def model(self) -> Any:
        return configured_model(self.facility.settings, self.facility.home)

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        with Catalog(self.facility.home) as opened, opened.transaction():
            yield opened

    def run(self, sql: str, *values: object) -> None:
        with self.catalog() as catalog:
            assert catalog.connection.execute(sql, values).rowcount > 0, "the damage missed"

    def rid(self) -> int:
        with self.catalog() as catalog:
            return self.rid_in(catalog)

    def rid_in(self, catalog: Catalog) -> int:
        return int(catalog.value("select rid from records where key = ?", (self.key,)))

    def look(self, *, deep: bool = False) -> Findings:
        with self.facility.workspace() as workspace:
            return audit(workspace, self.model(), deep=deep)

    def repair(self, *, deep: bool = False) -> tuple[Findings, list[str], Findings]:
        with self.facility.workspace() as workspace:
            return audit_and_repair(workspace, self.model(), deep=deep)

    def finds(self, key: str) -> bool:
        """Whether a search for what only this entry says finds it first, in both channels."""
        with Corpus.open(self.facility.home, None) as corpus:
            text = trip(key.partition(":")[2])
            return all(corpus.search(text, k=1, mode=mode).hits[0].key == key for mode in ("hybrid", "sparse"))

    def manifest(self, **changes: Any) -> None:
        newest = releases.latest(self.facility.home)
        assert newest is not None
        path = releases.folder_of(self.facility.home, newest.number) / releases.MANIFEST
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(newest, **changes)))


def copied(synced: Path, folder: Path, key: str = "BELY:100") -> Bench:
    """A home that was synced once, in a folder of its own."""
    shutil.copytree(synced, folder, dirs_exist_ok=True)
    return Bench(new_facility(folder), key)


@dataclass(frozen=True)
class Case:
    """Damage to one record, and what the audit must say of it."""

    plant: Callable[[Bench], None]
    found: Found


def expected(cases: dict[str, Case]) -> Found:
    """What the audit must say of the damage done to each of these records."""
    return {(kind, store, what.format(key=key)) for key, case in cases.items() for kind, store, what in case.found}


def said(found: Findings) -> Found:
    return {(each.kind, each.store, each.id) for each in found.listed}


def _of(key: str, values: dict[str, Any]) -> dict[str, Any]:
    return {name: value.format(key=key) if isinstance(value, str) else value for name, value in values.items()}


# LanceDB


def _vector_gone(bench: Bench) -> None:
    bench.chunks.delete(f"chunk_id = '{bench.key}#0.0'")


def _vector_altered(bench: Bench) -> None:
    bench.chunks.update(where=f"chunk_id = '{bench.key}#0.0'", values={"vector": [0.5] * 32})


def _chunk_of_another_version(bench: Bench) -> None:
    bench.chunks.update(where=f"chunk_id = '{bench.key}#0.0'", values={"text": "what the entry said before"})


def _chunk_twice(bench: Bench) -> None:
    row = bench.chunks.search().where(f"chunk_id = '{bench.key}#0.0'").limit(1).to_arrow()
    bench.chunks.add(row)


def _row_too_many(table: str, **changes: Any) -> Callable[[Bench], None]:
    def plant(bench: Bench) -> None:
        opened = bench.tables.table(table)
        (row,) = opened.search().where(f"key = '{bench.key}'").limit(1).to_arrow().to_pylist()
        opened.add(pa.Table.from_pylist([{**row, **_of(bench.key, changes)}], schema=opened.schema))

    return plant


def _labels_drift(bench: Bench) -> None:
    bench.tables.table("passages").update(where=f"key = '{bench.key}'", values={"access": ["ops"]})


def _title_differs(bench: Bench) -> None:
    bench.tables.table("records").update(where=f"key = '{bench.key}'", values={"title": "Another title"})


def _node_labels_drift(bench: Bench) -> None:
    bench.tables.table("nodes").update(where=f"node_id = '{bench.key}'", values={"access": ["ops"]})


def _table_gone(bench: Bench) -> None:
    bench.tables.drop("passages")


# Tantivy


def _document(bench: Bench, **changes: Any) -> sparse.SparseDocument:
    values: dict[str, Any] = {
        "chunk_id": f"{bench.key}#0.0", "rid": bench.rid(), "source": "bely", "feed": "logbook", "access": ["public"],
        "created_at": None, "text": "what the entry said before", "mentions": [], "names": [bench.key.lower()],
    }  # fmt: skip
    return sparse.SparseDocument(**{**values, **changes})


def _bm25(*, gone: bool = False, **changes: Any) -> Callable[[Bench], None]:
    def plant(bench: Bench) -> None:
        writer = sparse.SparseWriter(bench.facility.home.tantivy)
        added = [_document(bench, **_of(bench.key, changes))] if changes else []
        writer.replace([bench.rid()] if gone else [], added)
        writer.commit()
        writer.close()

    return plant


def _bm25_gone(bench: Bench) -> None:
    shutil.rmtree(bench.facility.home.tantivy)


def _bm25_damaged(bench: Bench) -> None:
    path = bench.facility.home.tantivy / "meta.json"
    path.write_text(path.read_text().replace('"segment_id"', '"segment"'))


# the catalog


def _sql(statement: str, *values: object) -> Callable[[Bench], None]:
    return lambda bench: bench.run(statement, *(v.format(key=bench.key) if isinstance(v, str) else v for v in values))


def _orphan_passage(bench: Bench) -> None:
    bench.run(
        "insert into passages select 'BELY:9#0', 9999, 0, kind, title, locator, text, hash from passages "
        "where passage_id = ?",
        f"{bench.key}#0",
    )


def _orphan_chunk(bench: Bench) -> None:
    bench.run(
        "insert into chunks select ?, rid, ?, text, hash from chunks where chunk_id = ?",
        *(f"{bench.key}#7.0", f"{bench.key}#7", f"{bench.key}#0.0"),
    )


def _other_text(table: str, column: str, row_id: str) -> Callable[[Bench], None]:
    return _sql(f"update {table} set text = ? where {column} = ?", pack(b"another text"), row_id)


def _labels_of_a_node_drift(bench: Bench) -> None:
    bench.run("update nodes set access = ? where node_id = ?", '["ops"]', bench.key)


def _chunk_cut_otherwise(bench: Bench) -> None:
    """Hash and vector fit the text; only the passage says another thing."""
    text = "what the entry said before"
    fingerprint = bench.model().description.fingerprint
    vector = bench.model().encoder().encode_passages([text])[0].astype("float16").tobytes()
    bench.run("insert into embeddings values (?, ?, ?)", fingerprint, text_hash(text), vector)
    chunk_id = f"{bench.key}#0.0"
    bench.run("update chunks set text = ?, hash = ? where chunk_id = ?", pack(text.encode()), text_hash(text), chunk_id)


def _vector_of_the_catalog(statement: str) -> Callable[[Bench], None]:
    def plant(bench: Bench) -> None:
        bench.run(f"{statement} where hash = (select hash from chunks where chunk_id = ?)", f"{bench.key}#0.0")

    return plant


def _unreadable(bench: Bench) -> None:
    bench.run("update records set body = ? where key = ?", b"not what zstandard writes", bench.key)


def _other_body(bench: Bench) -> None:
    with bench.catalog() as catalog:
        body = unpack(catalog.value("select body from records where key = ?", (bench.key,)))
    bench.run("update records set body = ? where key = ?", pack(body.replace(b"klystron", b"magnetron")), bench.key)


# attachments


def _blob(bench: Bench) -> Path:
    with bench.catalog() as catalog:
        found = catalog.value("select sha256 from attachments where rid = ?", (bench.rid_in(catalog),))
        return bench.facility.home.blobs.path(found)


def _other_bytes(bench: Bench) -> None:
    _blob(bench).write_bytes(b"other bytes")


def kept_by_a_cursor(bench: Bench) -> None:
    """As a live feed keeps what it has fetched."""
    with bench.catalog() as catalog:
        cursor = unpack_json(catalog.value("select cursor from feeds where feed = 'logbook'"))
        cursor["files"] = {"shift-2.json": {"picture": "0" * 64}}
        catalog.connection.execute("update feeds set cursor = ? where feed = 'logbook'", (pack_json(cursor),))


# marts and releases


def _stale_mart(bench: Bench) -> None:
    path = bench.facility.home.marts / "source_freshness.parquet"
    older = pq.read_table(path)
    path.unlink()  # the release's is a link to the same file
    pq.write_table(older.slice(0, 1), path)


def _other_pin(bench: Bench) -> None:
    """The tag was set to a version of a moment later."""
    table = bench.tables.table("records")
    table.delete("rid = -1")
    table.tags.delete(tag_of(1))
    table.tags.create(tag_of(1), table.version)


def _version_gone(bench: Bench) -> None:
    """The manifest names a version that was never written."""
    newest = releases.latest(bench.facility.home)
    assert newest is not None
    bench.manifest(tables={**newest.tables, "passages": 77})


def _lesser_version_pinned(bench: Bench) -> None:
    """The release pins a version in which a row was gone for a moment."""
    table = bench.tables.table("passages")
    row = table.search().where(f"key = '{bench.key}'").limit(1).to_arrow()
    table.delete(f"key = '{bench.key}'")
    pinned = table.version
    table.add(row)
    table.tags.delete(tag_of(1))
    table.tags.create(tag_of(1), pinned)
    newest = releases.latest(bench.facility.home)
    assert newest is not None
    bench.manifest(tables={**newest.tables, "passages": pinned})


def _folder(bench: Bench) -> Path:
    return releases.folder_of(bench.facility.home, 1)


def _other_index_released(bench: Bench) -> None:
    """The release has a BM25 index of its own, in which a record is missing."""
    folder = _folder(bench) / "tantivy"
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)  # no links, so that the working index keeps the record
    shutil.rmtree(folder)
    os.rename(copy, folder)
    writer = sparse.SparseWriter(folder)
    writer.replace([bench.rid()], [])
    writer.commit()
    writer.close()


def _stale_mart_released(bench: Bench) -> None:
    path = _folder(bench) / "marts" / "source_freshness.parquet"
    older = pq.read_table(path)
    path.unlink()
    pq.write_table(older.slice(0, 1), path)


def _model_altered(bench: Bench) -> None:
    newest = releases.latest(bench.facility.home)
    assert newest is not None
    bench.manifest(model=msgspec.structs.replace(newest.model, query_prefix="query: "))


def _manifest_damaged(bench: Bench) -> None:
    (_folder(bench) / releases.MANIFEST).write_text('{"number": 1, ')


CHUNK, PASSAGE = "{key}#0.0", "{key}#0"
_NOWHERE = {"node_id": "System:nowhere of {key}", "key": None, "name": "nowhere"}

#: Damage that rows show, all of it at once in one home: none may hide another.
IN_ROWS: tuple[Case, ...] = (
    Case(_vector_gone, {("missing_row", "lance chunks", CHUNK)}),
    Case(_vector_altered, {("different_row", "lance chunks", CHUNK)}),
    Case(_chunk_of_another_version, {("different_row", "lance chunks", CHUNK)}),
    Case(_chunk_twice, {("duplicate_row", "lance chunks", CHUNK)}),
    Case(
        _row_too_many("passages", rid=9999, passage_id="BELY:9#0", key="BELY:9"),
        {("surplus_row", "lance passages", "BELY:9#0")},
    ),
    Case(_row_too_many("passages", passage_id="{key}#1"), {("surplus_row", "lance passages", "{key}#1")}),
    Case(_row_too_many("edges", edge_id="of {key}"), {("surplus_row", "lance edges", "of {key}")}),
    Case(_row_too_many("nodes", **_NOWHERE), {("surplus_row", "lance nodes", "System:nowhere of {key}")}),
    Case(_labels_drift, {("different_row", "lance passages", PASSAGE)}),
    Case(_node_labels_drift, {("different_row", "lance nodes", "{key}")}),
    Case(_title_differs, {("different_row", "lance records", "{key}")}),
    Case(_bm25(chunk_id="{key}#0.7"), {("surplus_row", "bm25", "{key}#0.7")}),
    Case(_bm25(chunk_id="BELY:8#0.0", rid=9998), {("surplus_row", "bm25", "BELY:8#0.0")}),
    Case(_bm25(gone=True), {("missing_row", "bm25", CHUNK)}),
    Case(_bm25(chunk_id=CHUNK), {("duplicate_row", "bm25", CHUNK)}),
    Case(_bm25(gone=True, access=["ops"]), {("different_row", "bm25", CHUNK)}),
    Case(_orphan_passage, {("orphan_passage", "catalog", "BELY:9#0")}),
    Case(_orphan_chunk, {("orphan_chunk", "catalog", "{key}#7.0")}),
    Case(_sql("delete from chunks where chunk_id = ?", CHUNK), {("missing_chunk", "catalog", "{key}#0.")}),
    Case(
        _sql("update passages set ordinal = 2 where passage_id = ?", PASSAGE),
        {("missing_passage", "catalog", "{key}#")},
    ),
    Case(_other_text("passages", "passage_id", PASSAGE), {("wrong_passage_hash", "catalog", PASSAGE)}),
    Case(_other_text("chunks", "chunk_id", CHUNK), {("wrong_chunk_hash", "catalog", CHUNK)}),
    Case(_vector_of_the_catalog("delete from embeddings"), {("chunk_without_vector", "catalog", CHUNK)}),
    Case(
        _vector_of_the_catalog("update embeddings set vector = x'0102'"), {("wrong_vector", "catalog", CHUNK)}
    ),
    Case(
        _sql("update edges set edge_id = 'bare ' || ?, passage_id = 'BELY:9#4' where src = ?1 limit 1", "{key}"),
        {("edge_without_evidence", "catalog", "bare {key}")},
    ),
    Case(
        _sql("update edges set edge_id = 'lost ' || ?, dst = 'System:none' where src = ?1 limit 1", "{key}"),
        {("edge_without_node", "catalog", "lost {key}")},
    ),
    Case(
        _sql("insert into edges select 'dead ' || ?, 9997, src, relation, dst, null, extractor, confidence, 1, 0 "
             "from edges limit 1", "{key}"),
        {("orphan_edge", "catalog", "dead {key}")},
    ),
    Case(
        _sql("insert into mentions values (9997, ?, 'LogEntry', ?, null)", "{key}", "{key}"),
        {("orphan_mention", "catalog", "{key}")},
    ),
    Case(_labels_of_a_node_drift, {("wrong_node", "catalog", "{key}")}),
    Case(
        _sql("update nodes set removed = 1 where node_id = ?", "{key}"),
        {("mention_without_node", "catalog", "{key}"), ("edge_without_node", "catalog", "*")},
    ),
    Case(
        _sql("insert into nodes values (?, 'System', 'nobody', null, ?, 1, 0)", "System:nobody", '["public"]'),
        {("node_without_mention", "catalog", "System:nobody")},
    ),
)  # fmt: skip

#: What only cutting anew and reading attachments shows.
IN_DEPTH: tuple[Case, ...] = (
    Case(_chunk_cut_otherwise, {("other_chunks", "catalog", "{key}")}),
    Case(
        _sql("insert into mentions select rid, ?, 'WorkRequest', ?, ? from records where key = ?",
             "WRQ:20014", "WRQ:20014", "WRQ:20014", "{key}"),
        {("other_graph", "catalog", "{key}")},
    ),
)  # fmt: skip

#: What only the source can mend; the first record has an attachment.
IN_SOURCES: tuple[Case, ...] = (
    Case(lambda bench: _blob(bench).unlink(), {("missing_blob", "blobs", "*")}),
    Case(_other_bytes, {("damaged_blob", "blobs", "*")}),
    Case(kept_by_a_cursor, {("missing_blob", "blobs", "0" * 64)}),
    Case(_unreadable, {("unreadable_record", "catalog", "{key}")}),
    Case(_other_body, {("wrong_record_hash", "catalog", "{key}")}),
    Case(
        _sql("update records set access = ? where key = ?", '["ops"]', "{key}"),
        {("wrong_label_hash", "catalog", "{key}")},
    ),
)

#: Damage to whole stores and releases, as far as it can be told apart in one home.
IN_STORES: dict[str, Case] = {
    "stores are gone": Case(
        lambda bench: [_table_gone(bench), _bm25_gone(bench)],
        {
            ("missing_store", "lance passages", "passages"),
            ("missing_tag", "release 1", "passages release-00000001"),
            ("missing_store", "bm25", "tantivy"),
        },
    ),
    "marts, index and pins are damaged": Case(
        lambda bench: [
            _stale_mart(bench),
            (bench.facility.home.marts / "downtime_by_system.parquet").unlink(),
            _bm25_damaged(bench),
            bench.tables.table("passages").tags.delete(tag_of(1)),
            _other_pin(bench),
            (_folder(bench) / releases.LEASE).unlink(),
        ],
        {
            ("stale_mart", "marts", "source_freshness"),
            ("missing_mart", "marts", "downtime_by_system"),
            ("missing_store", "bm25", "tantivy"),
            ("missing_tag", "release 1", "passages release-00000001"),
            ("wrong_pin", "release 1", "records release-00000001"),
            ("damaged_release", "release 1", "lease"),
        },
    ),
    "the release is past mending": Case(
        lambda bench: [_version_gone(bench), (_folder(bench) / "marts" / "source_freshness.parquet").unlink()],
        {
            ("wrong_pin", "release 1", "passages release-00000001"),
            ("damaged_release", "release 1", "marts/source_freshness.parquet"),
        },
    ),
    "the release holds something else": Case(
        lambda bench: [
            _lesser_version_pinned(bench),
            _other_index_released(bench),
            _stale_mart_released(bench),
            _model_altered(bench),
        ],
        {
            ("missing_row", "release 1 passages", PASSAGE),
            ("missing_row", "release 1 bm25", CHUNK),
            ("stale_mart", "release 1 marts", "source_freshness"),
            ("wrong_count", "release 1", "passages"),
            ("wrong_model", "release 1", "model query_prefix"),
        },
    ),
    "the manifest is damaged": Case(
        _manifest_damaged,
        {("damaged_release", "release 1", "manifest.json"), ("behind", "stages", "release")},
    ),
}


def damage_the_released(bench: Bench) -> None:
    """A release of the versions that the tables have now: labels drifted in one of them, a passage gone from it."""
    table = bench.tables.table("passages")
    table.update(where=f"key = '{bench.key}'", values={"access": ["ops"]})
    table.delete("key = 'BELY:103'")
    newest = releases.latest(bench.facility.home)
    assert newest is not None
    table.tags.delete(tag_of(1))
    table.tags.create(tag_of(1), table.version)
    counts = {**newest.counts, "passages": table.count_rows()}
    bench.manifest(tables={**newest.tables, "passages": table.version}, counts=counts)


def unseal(bench: Bench) -> None:
    """Put an index there as versions wrote it whose documents bore no seals."""
    folder = bench.facility.home.tantivy
    shutil.rmtree(folder)
    folder.mkdir()
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("chunk", stored=True, tokenizer_name="raw")
    builder.add_integer_field("rid", stored=True, indexed=True, fast=True)
    index = tantivy.Index(builder.build(), path=str(folder))
    writer = index.writer()
    writer.add_document(tantivy.Document(chunk="BELY:9#0.0", rid=9))
    writer.commit()
    writer.wait_merging_threads()
    bench.run("update stages set version = 'bm25:1' where stage = 'sparse_index'")
