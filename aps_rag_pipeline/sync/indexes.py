"""Chunks → vectors → LanceDB, and chunks → Tantivy. Each index takes what moved since the changeset it applied last."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from sqlite3 import Row
from typing import Any

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.knowledge import identifiers
from aps_rag_pipeline.models import Encoder
from aps_rag_pipeline.models.encoder import Vectors
from aps_rag_pipeline.stores import sparse
from aps_rag_pipeline.stores.catalog import Catalog, marks, unpack
from aps_rag_pipeline.stores.tables import PASSAGES, RECORDS, SCHEMAS, chunks_schema, chunks_table
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import rows, scrub
from aps_rag_pipeline.sync.model import ConfiguredModel
from aps_rag_pipeline.sync.names import DENSE, DENSE_VERSION, EMBEDDINGS, SPARSE, SPARSE_VERSION
from aps_rag_pipeline.sync.workspace import ChangedRecord, StageReport, Workspace, run_stage, start_over

log = logging.getLogger(__name__)

#: Texts that are encoded and committed together. A killed run loses what it was encoding, and one slice that waited.
ENCODE_BATCH = 1024
#: Lance writes a version a batch: fewer, larger ones.
_INDEX_BATCH = 5000


def embed(workspace: Workspace, model: ConfiguredModel, encoder: Encoder | None = None) -> StageReport:
    """Vectors of the chunks that have none yet by this model. The same text is never embedded twice.

    `encoder` is opened with the first text when it is not given: a run without work loads no model.
    """
    catalog, fingerprint = workspace.catalog, model.description.fingerprint
    opened: list[Encoder] = [encoder] if encoder is not None else []

    def work(changed: list[ChangedRecord]) -> Counter[str]:
        rids = [record.rid for record in changed if not record.removed]
        of_these = f"rid in ({marks(rids)})"
        missing = catalog.rows(
            f"select c.hash, min(c.chunk_id) as chunk_id from chunks c where c.{of_these} and not exists "
            "(select 1 from embeddings e where e.model = ? and e.hash = c.hash) group by c.hash",
            (*rids, fingerprint),
        )
        counts: Counter[str] = Counter(changed=len(missing), embedded=len(missing))
        counts["chunks"] = int(catalog.value(f"select count(*) from chunks where {of_these}", rids))
        if missing and not opened:
            opened.append(model.encoder())
        if missing:
            slices = _with_texts(catalog, missing)
            kept = keep_vectors(catalog, fingerprint, opened[0].encode_passages, slices)
            for _ in workspace.progress.track(kept, "embedding", -(-len(missing) // ENCODE_BATCH)):
                pass
        return counts

    report = run_stage(workspace, EMBEDDINGS, fingerprint, work, batch=_INDEX_BATCH)
    report.counts["reused"] = report.counts["chunks"] - report.counts["embedded"]
    return report


def _with_texts(catalog: Catalog, missing: list[Row]) -> Iterator[list[tuple[bytes, str]]]:
    for start in range(0, len(missing), ENCODE_BATCH):
        some = {row["chunk_id"]: row["hash"] for row in missing[start : start + ENCODE_BATCH]}
        found = catalog.rows(f"select chunk_id, text from chunks where chunk_id in ({marks(some)})", tuple(some))
        yield [(some[row["chunk_id"]], unpack(row["text"]).decode()) for row in found]


def keep_vectors(
    catalog: Catalog,
    fingerprint: str,
    encode: Callable[[list[str]], Vectors],
    slices: Iterable[list[tuple[bytes, str]]],
) -> Iterator[int]:
    """Encode slices of (hash, text) and keep their vectors in the catalog; gives the size of each when it is committed.

    While the encoder works on one slice the next is read and the last one committed.
    """
    worker = ThreadPoolExecutor(1, thread_name_prefix="encoder")
    try:
        running: tuple[list[bytes], Future[Vectors]] | None = None
        for some in slices:
            following = [found for found, _ in some], worker.submit(encode, [text for _, text in some])
            if running is not None:
                yield _keep(catalog, fingerprint, *running)
            running = following
        if running is not None:
            yield _keep(catalog, fingerprint, *running)
    finally:
        worker.shutdown(cancel_futures=True)


def _keep(catalog: Catalog, fingerprint: str, hashes: list[bytes], encoded: Future[Vectors]) -> int:
    # Half precision keeps a cosine to seven digits and half the disk.
    vectors = encoded.result().astype("float16")
    with catalog.transaction() as connection:
        connection.executemany(
            "insert or replace into embeddings values (?, ?, ?)",
            ((fingerprint, found, vector.tobytes()) for found, vector in zip(hashes, vectors, strict=True)),
        )
        passing("vectors.commit.before")
    passing("vectors.commit.after")
    return len(hashes)


def index_dense(workspace: Workspace, configured: ConfiguredModel) -> StageReport:
    """The released tables of records, passages and chunks, brought up to the newest changeset."""
    catalog, tables, model = workspace.catalog, LanceTables(workspace.home), configured.description
    chunks = chunks_table(model.fingerprint)
    schema = chunks_schema(model.dimensions)
    version = f"{DENSE_VERSION}:{model.fingerprint}"
    if any(not tables.exists(name) for name in (RECORDS, PASSAGES, chunks)):
        start_over(catalog, DENSE, version)
        for name, columns in ((RECORDS, SCHEMAS[RECORDS]), (PASSAGES, SCHEMAS[PASSAGES]), (chunks, schema)):
            tables.table(name, columns)

    def work(changed: list[ChangedRecord]) -> Counter[str]:
        rids = [record.rid for record in changed]
        live = rows.served(catalog, rids)
        counts: Counter[str] = Counter(changed=len(rids))
        passing("dense.batch.before")
        counts["records"] = tables.replace(RECORDS, SCHEMAS[RECORDS], "rid", rids, [rows.record_rows(live)])
        counts["passages"] = tables.replace(
            PASSAGES, SCHEMAS[PASSAGES], "rid", rids, [rows.passage_rows(catalog, live)]
        )
        batches = rows.chunk_rows(catalog, live, model.fingerprint, model.dimensions)
        counts["chunks"] = tables.replace(chunks, schema, "rid", rids, batches)
        passing("dense.batch.after")
        return counts

    return run_stage(
        workspace, DENSE, version, work, batch=_INDEX_BATCH, carry=lambda: tables.carry(RECORDS, PASSAGES, chunks)
    )


def index_sparse(workspace: Workspace) -> StageReport:
    """The BM25 index, brought up to the newest changeset in one commit."""
    catalog, folder = workspace.catalog, workspace.home.tantivy
    news = catalog.applied(SPARSE, SPARSE_VERSION) < catalog.changeset()
    if not sparse.exists(folder) or scrub.wanted(catalog) or (news and sparse.mostly_deleted(folder)):
        start_over(catalog, SPARSE, SPARSE_VERSION)
        passing("bm25.rewrite.before")
        sparse.create_index(folder)
        passing("bm25.rewrite.after")
    writers: list[sparse.SparseWriter] = []

    def work(changed: list[ChangedRecord]) -> Counter[str]:
        if not writers:
            writers.append(sparse.SparseWriter(folder))
        rids = [record.rid for record in changed]
        live = rows.served(catalog, rids)
        added = writers[0].replace(rids, documents(catalog, live))
        passing("bm25.commit.before")
        writers[0].commit()
        passing("bm25.commit.after")
        return Counter(changed=len(rids), chunks=added)

    try:
        return run_stage(workspace, SPARSE, SPARSE_VERSION, work, batch=_INDEX_BATCH)
    finally:
        for writer in writers:
            writer.close()


def documents(
    catalog: Catalog, live: dict[int, Any], find: Callable[[str], list[str]] = identifiers.find
) -> Iterator[sparse.SparseDocument]:
    """The BM25 documents of served records. `find` finds the identifiers in a text."""
    names = {rid: names_of(row["key"], row["id"], rows.former_ids_in(row["body"])) for rid, row in live.items()}
    for chunk, record, text, created in rows.chunk_texts(catalog, live):
        yield sparse.SparseDocument(
            chunk_id=chunk["chunk_id"],
            rid=chunk["rid"],
            source=record["source"],
            feed=record["feed"],
            access=rows.labels(record["access"]),
            created_at=created,
            text=text,
            mentions=find(text),
            names=names[chunk["rid"]],
        )


def names_of(key: str, record_id: str, former: Sequence[str] = ()) -> Sequence[str]:
    """Identifiers that are this record: its key, its id, and the key without the feed; and so for its former ids."""
    prefix, stem = key.partition(":")[0], key.removesuffix(record_id)
    names = (name for known in (record_id, *former) for name in (f"{stem}{known}", known, f"{prefix}:{known}"))
    return list(dict.fromkeys(identifiers.normal(name) for name in names))
