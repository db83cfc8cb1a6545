"""Every record cut anew: whether passages, chunks, nodes and edges are what the present code makes of its text."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import lru_cache, partial

from aps_rag_pipeline.audit.catalog import STORE
from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.audit.spans import SPAN
from aps_rag_pipeline.content.passages import cut
from aps_rag_pipeline.stores.catalog import Catalog, marks
from aps_rag_pipeline.sync.graph import extracted
from aps_rag_pipeline.sync.model import ConfiguredModel
from aps_rag_pipeline.sync.text import bodies, chunks_of, known_names, open_chunker, picture_reader
from aps_rag_pipeline.sync.workspace import ChangedRecord, Workspace, changed_records

_Rows = set[tuple[object, ...]]


def check_cut(workspace: Workspace, model: ConfiguredModel, findings: Findings) -> None:
    """Compare record, passages, chunks and graph of every live record. Those found wrong already are left out."""
    catalog, settings = workspace.catalog, workspace.settings
    languages = {feed.name: feed.ocr_language for feed in settings.feeds}
    names = lru_cache(maxsize=1)(partial(known_names, catalog))
    chunker = open_chunker(settings.chunking, model)
    for batch in changed_records(catalog, 0, SPAN):
        doubtful = findings.damage.records | findings.damage.unread
        changed = [record for record in batch if record.rid not in doubtful and not record.removed]
        for record, body in bodies(catalog, changed):
            shown = picture_reader(catalog, languages.get(record.feed, "eng"), names, body.access)
            made = cut(body, settings.chunking.passage_words, shown) if body.access else []
            wanted: _Rows = {(f"{record.key}#{each.ordinal}", each.hash) for each in made}
            if _unlike(findings, "other_passages", record, wanted, _stored(catalog, "passage_id, hash", record)):
                continue
            chunks: _Rows = {(chunk_id, found) for chunk_id, _, _, found in chunks_of(catalog, record, chunker)}
            _unlike(findings, "other_chunks", record, chunks, _stored(catalog, "chunk_id, hash", record))
        _check_graph(catalog, [r for r in changed if r.rid not in findings.damage.records], findings)


def _stored(catalog: Catalog, columns: str, record: ChangedRecord) -> _Rows:
    table = "passages" if columns.startswith("passage") else "chunks"
    return {tuple(row) for row in catalog.rows(f"select {columns} from {table} where rid = ?", (record.rid,))}


def _unlike(findings: Findings, kind: str, record: ChangedRecord, wanted: _Rows, found: _Rows) -> bool:
    if wanted == found:
        return False
    problem = f"cut anew it has {len(wanted)} {kind.removeprefix('other_')}, of which {len(wanted & found)} are there"
    findings.add(kind, STORE, record.key, problem, record.key)
    findings.damage.records.add(record.rid)
    return True


def _check_graph(catalog: Catalog, changed: list[ChangedRecord], findings: Findings) -> None:
    """What a batch of records mentions and states, against what the catalog has of it."""
    mentions, edges, _ = extracted(catalog, changed)
    # By id, as the catalog keeps them: of two statements of one id the later stays.
    wanted: dict[int, dict[str, tuple[object, ...]]] = {record.rid: {} for record in changed}
    for rid, node in mentions:
        wanted[rid][node.node_id] = (node.node_id, str(node.type), node.name, node.key)
    for rid, edge in edges:
        said = (edge.edge_id, edge.src, str(edge.relation), edge.dst, edge.passage_id, edge.extractor, edge.confidence)
        wanted[rid][edge.edge_id] = said
    found: dict[int, _Rows] = {record.rid: set() for record in changed}
    for row in _graph_rows(catalog, [record.rid for record in changed]):
        found[row["rid"]].add(tuple(row)[1:])
    for record in changed:
        a, b = set(wanted[record.rid].values()), found[record.rid]
        if a != b:
            problem = f"read anew it gives {len(a)} mentions and edges, of which {len(a & b)} are there"
            findings.add("other_graph", STORE, record.key, problem, record.key)
            findings.damage.records.add(record.rid)


def _graph_rows(catalog: Catalog, rids: list[int]) -> Iterator[sqlite3.Row]:
    of_these = f"rid in ({marks(rids)})"
    yield from catalog.rows(f"select rid, node_id, type, name, key from mentions where {of_these}", rids)
    yield from catalog.rows(
        "select rid, edge_id, src, relation, dst, passage_id, extractor, confidence from edges "
        f"where removed = 0 and {of_these}",
        rids,
    )
