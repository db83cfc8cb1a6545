"""Chunks → vectors → LanceDB, and chunks → Tantivy. Each index takes what moved since the changeset it applied last."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from aps_rag_pipeline.knowledge import identifiers
from aps_rag_pipeline.models import Encoder
from aps_rag_pipeline.stores import sparse
from aps_rag_pipeline.stores.catalog import Catalog, marks, unpack
from aps_rag_pipeline.stores.tables import PASSAGES, RECORDS, SCHEMAS, chunks_schema, chunks_table
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import rows
from aps_rag_pipeline.sync.model import ConfiguredModel
from aps_rag_pipeline.sync.names import DENSE, DENSE_VERSION, EMBEDDINGS, SPARSE, SPARSE_VERSION
from aps_rag_pipeline.sync.workspace import ChangedRecord, StageReport, Workspace, run_stage

log = logging.getLogger(__name__)

#: Texts that are encoded and committed together: what a killed run loses at most.
_ENCODE_BATCH = 1024
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
        slices = [missing[start : start + _ENCODE_BATCH] for start in range(0, len(missing), _ENCODE_BATCH)]
        for some in workspace.progress.track(slices, "embedding", len(slices)):
            _embed_some(catalog, fingerprint, opened[0], [(row["hash"], row["chunk_id"]) for row in some])
        return counts

    report = run_stage(workspace, EMBEDDINGS, fingerprint, work, batch=_INDEX_BATCH)
    report.counts["reused"] = report.counts["chunks"] - report.counts["embedded"]
    return report


def _embed_some(catalog: Catalog, fingerprint: str, encoder: Encoder, some: list[tuple[bytes, str]]) -> None:
    import numpy as np

    texts = [
        unpack(catalog.value("select text from chunks where chunk_id = ?", (chunk_id,))).decode()
        for _, chunk_id in some
    ]
    # Half precision keeps a cosine to seven digits and half the disk.
    vectors = encoder.encode_passages(texts).astype(np.float16)
    with catalog.transaction() as connection:
        connection.executemany(
            "insert or replace into embeddings values (?, ?, ?)",
            ((fingerprint, found, vector.tobytes()) for (found, _), vector in zip(some, vectors, strict=True)),
        )


def index_dense(workspace: Workspace, configured: ConfiguredModel) -> StageReport:
    """The released tables of records, passages and chunks, brought up to the newest changeset."""
    catalog, tables, model = workspace.catalog, LanceTables(workspace.home), configured.description
    chunks = chunks_table(model.fingerprint)
    schema = chunks_schema(model.dimensions)
    missing = any(not tables.exists(name) for name in (RECORDS, PASSAGES, chunks))
    for name, columns in ((RECORDS, SCHEMAS[RECORDS]), (PASSAGES, SCHEMAS[PASSAGES]), (chunks, schema)):
        if missing:
            tables.table(name, columns)

    def work(changed: list[ChangedRecord]) -> Counter[str]:
        rids = [record.rid for record in changed]
        live = rows.served(catalog, rids)
        counts: Counter[str] = Counter(changed=len(rids))
        counts["records"] = tables.replace(RECORDS, SCHEMAS[RECORDS], "rid", rids, [rows.record_rows(live)])
        counts["passages"] = tables.replace(
            PASSAGES, SCHEMAS[PASSAGES], "rid", rids, [rows.passage_rows(catalog, live)]
        )
        batches = rows.chunk_rows(catalog, live, model.fingerprint, model.dimensions)
        counts["chunks"] = tables.replace(chunks, schema, "rid", rids, batches)
        return counts

    version = f"{DENSE_VERSION}:{model.fingerprint}"
    return run_stage(
        workspace, DENSE, version, work, start_over=missing and _has_run(catalog, DENSE), batch=_INDEX_BATCH
    )


def index_sparse(workspace: Workspace) -> StageReport:
    """The BM25 index, brought up to the newest changeset in one commit."""
    catalog, folder = workspace.catalog, workspace.home.tantivy
    missing = not sparse.exists(folder)
    writers: list[sparse.SparseWriter] = []

    def work(changed: list[ChangedRecord]) -> Counter[str]:
        if not writers:
            writers.append(sparse.SparseWriter(folder))
        rids = [record.rid for record in changed]
        live = rows.served(catalog, rids)
        added = writers[0].replace(rids, _documents(catalog, live))
        writers[0].commit()
        return Counter(changed=len(rids), chunks=added)

    if missing:
        sparse.create_index(folder)
    try:
        return run_stage(
            workspace,
            SPARSE,
            SPARSE_VERSION,
            work,
            start_over=missing and _has_run(catalog, SPARSE),
            batch=_INDEX_BATCH,
        )
    finally:
        for writer in writers:
            writer.close()


def _has_run(catalog: Catalog, stage: str) -> bool:
    return catalog.value("select 1 from stages where stage = ?", (stage,)) is not None


def _documents(catalog: Catalog, live: dict[int, Any]) -> Iterator[sparse.SparseDocument]:
    names = {rid: names_of(row["key"], row["id"], rows.former_ids_in(row["body"])) for rid, row in live.items()}
    for chunk, record, text, created in rows.chunk_texts(catalog, live):
        yield sparse.SparseDocument(
            chunk_id=chunk["chunk_id"],
            rid=chunk["rid"],
            source=record["source"],
            feed=record["feed"],
            access=json.loads(record["access"]),
            created_at=created,
            text=text,
            mentions=identifiers.find(text),
            names=names[chunk["rid"]],
        )


def names_of(key: str, record_id: str, former: Sequence[str] = ()) -> Sequence[str]:
    """Identifiers that are this record: its key, its id, and the key without the feed; and so for its former ids."""
    prefix, stem = key.partition(":")[0], key.removesuffix(record_id)
    names = (name for known in (record_id, *former) for name in (f"{stem}{known}", known, f"{prefix}:{known}"))
    return list(dict.fromkeys(identifiers.normal(name) for name in names))
