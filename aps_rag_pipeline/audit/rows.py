"""Catalog against indexes: what the stages would write of each record now, and what stands in LanceDB and Tantivy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from aps_rag_pipeline.audit.comparing import Difference, differences, without
from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.audit.scope import Scope
from aps_rag_pipeline.audit.spans import Span, select
from aps_rag_pipeline.audit.unreadable import note_damage
from aps_rag_pipeline.knowledge import identifiers
from aps_rag_pipeline.models import ModelDescription
from aps_rag_pipeline.stores import sparse
from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.damage import DamagedStoreError, check_index, damage_of, reading
from aps_rag_pipeline.stores.tables import EDGES, NODES, PASSAGES, RECORDS, SCHEMAS, chunks_schema, chunks_table
from aps_rag_pipeline.sync import rows
from aps_rag_pipeline.sync.graph import edge_rows
from aps_rag_pipeline.sync.indexes import documents

BM25 = "bm25"
#: Column that names a row, by table; that of chunks is `chunk_id`.
_IDS = {RECORDS: "key", PASSAGES: "passage_id", EDGES: "edge_id"}
CHUNKS = "chunks"


@dataclass
class Sides:
    """Places in which the same rows should stand: the working state and, where it is not provably the same, the
    release. Each has a name for people; `released` are the names of those in a release, and its number."""

    tables: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    indexes: list[tuple[str, Any]] = field(default_factory=list)
    released: dict[str, int] = field(default_factory=dict)

    def rows(
        self, name: str, condition: str, columns: Sequence[str], findings: Findings
    ) -> Iterator[tuple[str, pa.Table]]:
        """Rows of a table from every place where it stands. A place that cannot be read is found damaged and asked no
        more; if it is the working one, so are the others, which are built anew with it."""
        for label, table in list(self.tables.get(name, ())):
            try:
                found = select(table, condition, columns)
            except DamagedStoreError as error:
                note_damage(findings, label, damage_of(table) or error)
                if label in self.released:
                    findings.damage.releases.add(self.released[label])
                    self.tables[name].remove((label, table))
                else:
                    findings.damage.stores.add(table.name)
                    del self.tables[name]
                    return
            else:
                findings.checked[label] += found.num_rows
                yield label, found


class RowAudit:
    """Walks the records in scope once and compares everything with them. `deep` as for the whole audit."""

    def __init__(
        self, catalog: Catalog, model: ModelDescription, sides: Sides, findings: Findings, *, deep: bool
    ) -> None:
        self._catalog, self._model, self._sides, self._findings = catalog, model, sides, findings
        self._deep = deep
        self._find: Callable[[str], list[str]] = identifiers.find if deep else _not_looked_for

    def run(self, scope: Scope) -> Iterator[Span[int]]:
        """Compare stretch by stretch; gives each when it has been looked at."""
        for span in scope.records():
            self._compare(span)
            yield span

    def _compare(self, span: Span[int]) -> None:
        damage = self._findings.damage
        # What the catalog says of these is wrong in itself: their rows are written anew whatever they are.
        doubtful = (damage.records | damage.unread).intersection(span.ids)
        live = {rid: row for rid, row in rows.served(self._catalog, span.ids).items() if rid not in doubtful}
        for name, wanted in self._wanted(live):
            for label, found in self._sides.rows(name, span.condition, wanted.schema.names, self._findings):
                for difference in differences(wanted, without(found, doubtful), _IDS.get(name, "chunk_id")):
                    self._note(label, name, difference, span.ids)
        if self._sides.indexes:
            self._compare_documents(span, live, doubtful)

    def _wanted(self, live: Mapping[int, Any]) -> Iterator[tuple[str, pa.Table]]:
        catalog, model, records = self._catalog, self._model, dict(live)
        yield RECORDS, _table(rows.record_rows(records), SCHEMAS[RECORDS])
        yield PASSAGES, _table(rows.passage_rows(catalog, records), SCHEMAS[PASSAGES])
        batches = rows.chunk_rows(catalog, records, model.fingerprint, model.dimensions)
        yield CHUNKS, pa.Table.from_batches(list(batches), chunks_schema(model.dimensions))
        yield EDGES, _table(rows.batch(list(edge_rows(catalog, list(records))), SCHEMAS[EDGES]), SCHEMAS[EDGES])

    def _compare_documents(self, span: Span[int], live: dict[int, Any], doubtful: set[int]) -> None:
        size = None if self._deep else sparse.SEAL_BYTES
        wanted = {
            each.chunk_id: (each.rid, each.seal if self._deep else sparse.seal_without_mentions(each))
            for each in documents(self._catalog, live, self._find)
        }
        for label, index in self._sides.indexes:
            found = [document for document in stored_in(index, span) if document.rid not in doubtful]
            self._findings.checked[label] += len(found)
            for difference in document_differences(wanted, found, size):
                self._note(label, BM25, difference, span.ids)

    def _note(self, label: str, store: str, difference: Difference, known: Sequence[int]) -> None:
        key = difference.key or difference.id.rpartition("#")[0]
        self._findings.add(difference.kind, label, difference.id, difference.problem, key)
        damage = self._findings.damage
        if label in self._sides.released:
            damage.republish = True
            return
        if store == EDGES:
            damage.edges.add(difference.id)
        (damage.records if difference.rid in known else damage.strangers).add(difference.rid)


def stored_in(index: Any, span: Span[int]) -> list[sparse.StoredDocument]:
    """The BM25 documents of a stretch of records."""
    if span.alone:
        return sparse.documents_of(index, span.ids)
    return sparse.stored_documents(index, span.after, span.upto)


def check_sizes(catalog: Catalog, sides: Sides, findings: Findings) -> None:
    """Whether every side has as many rows as the catalog: of what is out of scope no more is looked at."""
    served = "removed = 0 and access <> '[]'"
    wanted = {
        RECORDS: catalog.value(f"select count(*) from records where {served}"),
        PASSAGES: catalog.value("select count(*) from passages"),
        CHUNKS: catalog.value("select count(*) from chunks"),
        NODES: catalog.value("select count(*) from nodes where removed = 0"),
        EDGES: catalog.value("select count(*) from edges where removed = 0"),
    }
    counted = [(name, label, table.count_rows()) for name in wanted for label, table in sides.tables.get(name, ())]
    counted += [(CHUNKS, label, int(index.searcher().num_docs)) for label, index in sides.indexes]
    for name, label, found in counted:
        if found != wanted[name]:
            findings.add("wrong_count", label, name, f"has {found} {name}, the catalog {wanted[name]}")


def document_differences(
    wanted: Mapping[str, tuple[int, bytes]], found: Sequence[sparse.StoredDocument], size: int | None
) -> Iterator[Difference]:
    """BM25 documents in both directions. `wanted` has a record number and a seal by chunk id; `size` bytes of a seal
    are compared."""
    by_id: dict[str, list[sparse.StoredDocument]] = {}
    for document in found:
        by_id.setdefault(document.chunk_id, []).append(document)
    for chunk_id, some in by_id.items():
        expected = wanted.get(chunk_id)
        if expected is None:
            yield Difference("surplus_row", chunk_id, "", some[0].rid)
        elif len(some) > 1:
            yield Difference("duplicate_row", chunk_id, "", expected[0])
        elif expected[1][:size] != some[0].seal[:size]:
            yield Difference("different_row", chunk_id, "", expected[0], ("seal",))
    for chunk_id in wanted.keys() - by_id.keys():
        yield Difference("missing_row", chunk_id, "", wanted[chunk_id][0])


def working_sides(tables: Any, folder: Path, model: ModelDescription, findings: Findings) -> Sides:
    """The working tables and the working BM25 index; those that are not there at all are found missing."""
    sides = Sides()
    for name in (RECORDS, PASSAGES, CHUNKS, NODES, EDGES):
        stored = chunks_table(model.fingerprint) if name == CHUNKS else name
        if stored in findings.damage.stores:  # found damaged already
            continue
        if tables.exists(stored):
            sides.tables[name] = [(f"lance {name}", tables.table(stored))]
        else:
            findings.add("missing_store", f"lance {name}", stored, "the table is not there")
            findings.damage.stores.add(stored)
    index, problem = open_bm25(folder, findings.sums)
    if index is None:
        findings.add("missing_store", BM25, folder.name, problem)
        findings.damage.stores.add(BM25)
    else:
        sides.indexes.append((BM25, index))
    return sides


def open_bm25(folder: Path, seen: dict[tuple[int, int], str]) -> tuple[Any, str]:
    """A BM25 index whose files are what was written, or None and why there is none. `seen` as in `check_index`."""
    if not sparse.exists(folder):
        return None, "the index is not there"
    try:
        check_index(folder, seen)
        with reading(folder):
            index = sparse.open_index(folder)
            index.searcher()
    except DamagedStoreError as error:
        return None, f"the index cannot be opened: {error.place.name} {error.reason}"
    return index, ""


def _table(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([batch], schema)


def _not_looked_for(_: str) -> list[str]:
    return []
