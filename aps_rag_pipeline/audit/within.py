"""A release proved from its own content, when the working state has moved on and proves nothing about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aps_rag_pipeline.audit.comparing import Difference
from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.audit.marts import check_marts
from aps_rag_pipeline.audit.releases import Pinned, store_of
from aps_rag_pipeline.audit.rows import CHUNKS, document_differences, stored_in
from aps_rag_pipeline.audit.spans import Span, select, spans
from aps_rag_pipeline.audit.unreadable import name_of, note_damage
from aps_rag_pipeline.records import former_ids
from aps_rag_pipeline.stores import sparse
from aps_rag_pipeline.stores.damage import DamagedStoreError, damage_of
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.releases import Manifest, folder_of
from aps_rag_pipeline.stores.tables import EDGES, NODES, PASSAGES, RECORDS, chunks_table
from aps_rag_pipeline.sync.indexes import names_of

_ORIGIN = ("rid", "key", "source", "feed", "access")
_Records = dict[int, dict[str, Any]]


class ReleaseAudit:
    """Compares the tables, the BM25 index and the marts of one release with each other."""

    def __init__(self, home: Home, manifest: Manifest, findings: Findings) -> None:
        self._home, self._manifest, self._findings = home, manifest, findings
        pinned = Pinned(home, manifest)
        stored = {name: name for name in (RECORDS, PASSAGES, NODES, EDGES)}
        stored[CHUNKS] = chunks_table(manifest.model.fingerprint)
        self._tables = {name: pinned.table(stored[name]) for name in stored}
        folder = folder_of(home, manifest.number) / "tantivy"
        self._index = sparse.open_index(folder)
        # Documents of earlier versions bear no seals: of these only the ids are compared.
        self._size = sparse.SEAL_BYTES if sparse.sealed(folder) else 0

    def run(self) -> None:
        """A table that cannot be read is found damaged, and ends it: the release is past mending."""
        try:
            self._run()
        except DamagedStoreError as error:
            name = name_of(error.place.stem)
            better = damage_of(self._tables[name]) if name in self._tables else None
            note_damage(self._findings, store_of(self._manifest.number, name), better or error)
            self._findings.damage.releases.add(self._manifest.number)

    def _run(self) -> None:
        rids = select(self._tables[RECORDS], "true", ["rid"])["rid"].combine_chunks().sort()
        nodes = select(self._tables[NODES], "true", ["node_id"])["node_id"].combine_chunks()
        for span in spans("rid", (rid.as_py() for rid in rids)):
            self._compare(span, nodes)
        label = store_of(self._manifest.number, "marts")
        folder = folder_of(self._home, self._manifest.number) / "marts"
        check_marts(self._read, [(label, folder, True)], self._findings)

    def _read(self, name: str) -> pa.Table:
        return select(self._tables[name], "true", self._tables[name].schema.names)

    def _compare(self, span: Span[int], nodes: pa.Array) -> None:
        columns = [*_ORIGIN, "id", "created_at", "fields"]
        rows = select(self._tables[RECORDS], span.condition, columns).to_pylist()
        records = {row["rid"]: row for row in rows}
        passages = self._derived(PASSAGES, span, records, ["passage_id", "created_at"], "passage_id")
        chunks = self._derived(CHUNKS, span, records, ["chunk_id", "passage_id", "created_at", "text"], "chunk_id")
        edges = self._derived(EDGES, span, records, ["edge_id", "passage_id", "src", "dst"], "edge_id")
        known = {row["passage_id"] for row in passages}
        self._demand_passages(CHUNKS, chunks, known, "chunk_id")
        self._demand_passages(EDGES, [row for row in edges if row["passage_id"] is not None], known, "edge_id")
        for bare in sorted(known - {row["passage_id"] for row in chunks}):
            self._add("missing_row", CHUNKS, f"{bare}.0", "the passage has no chunk", bare.rpartition("#")[0])
        ends = pa.array(sorted({row[end] for row in edges for end in ("src", "dst")}), pa.string())
        for lost in ends.filter(pc.invert(pc.is_in(ends, nodes))).to_pylist():
            self._add("missing_row", NODES, lost, "an edge leads to it", "")
        self._compare_documents(span, records, chunks)

    def _derived(
        self, name: str, span: Span[int], records: _Records, columns: Sequence[str], id_column: str
    ) -> list[dict[str, Any]]:
        """Rows of a table, each held against its record."""
        rows: list[dict[str, Any]] = select(self._tables[name], span.condition, [*_ORIGIN, *columns]).to_pylist()
        self._findings.checked[store_of(self._manifest.number, name)] += len(rows)
        seen: set[str] = set()
        for row in rows:
            record = records.get(row["rid"])
            if record is None:
                self._add("surplus_row", name, row[id_column], "its record is not in the release", row["key"])
                continue
            unlike = [column for column in (*_ORIGIN, "created_at") if column in row and row[column] != record[column]]
            if unlike:
                problem = f"differs from its record in {', '.join(unlike)}"
                self._add("different_row", name, row[id_column], problem, row["key"])
            if row[id_column] in seen:
                self._add("duplicate_row", name, row[id_column], "is there more than once", row["key"])
            seen.add(row[id_column])
        return rows

    def _demand_passages(self, name: str, rows: Sequence[dict[str, Any]], known: set[str], id_column: str) -> None:
        for row in rows:
            if row["passage_id"] not in known:
                problem = f"its passage {row['passage_id']} is not in the release"
                self._add("surplus_row", name, row[id_column], problem, row["key"])

    def _compare_documents(self, span: Span[int], records: _Records, chunks: Sequence[dict[str, Any]]) -> None:
        wanted = {
            row["chunk_id"]: (row["rid"], sparse.seal_without_mentions(_document(row, records[row["rid"]])))
            for row in chunks
            if row["rid"] in records
        }
        found = stored_in(self._index, span)
        self._findings.checked[store_of(self._manifest.number, "bm25")] += len(found)
        for difference in document_differences(wanted, found, self._size):
            self._note("bm25", difference)

    def _note(self, name: str, difference: Difference) -> None:
        self._add(difference.kind, name, difference.id, difference.problem, difference.id.rpartition("#")[0])

    def _add(self, kind: str, name: str, row_id: str, problem: str, key: str) -> None:
        self._findings.add(kind, store_of(self._manifest.number, name), row_id, problem, key)
        self._findings.damage.republish = True


def _document(chunk: dict[str, Any], record: dict[str, Any]) -> sparse.SparseDocument:
    """The BM25 document of a released chunk, but for what is mentioned in its text."""
    return sparse.SparseDocument(
        chunk_id=chunk["chunk_id"], rid=chunk["rid"], source=chunk["source"], feed=chunk["feed"],
        access=chunk["access"], created_at=chunk["created_at"], text=chunk["text"], mentions=(),
        names=names_of(record["key"], record["id"], former_ids(json.loads(record["fields"]))),
    )  # fmt: skip
