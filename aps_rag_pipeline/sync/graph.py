"""Changed records → nodes and edges with their evidence → the released tables, and the projection to a Bolt server.

A node lives while a record mentions it, an edge as long as the record that states it. Rows that went stay as tombstones
until the projection has seen them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.knowledge.entities import EdgeEvidence, NodeMention, settle
from aps_rag_pipeline.knowledge.structure import EXTRACTOR, extract
from aps_rag_pipeline.records import KEY_PREFIX
from aps_rag_pipeline.stores.catalog import Catalog, marks
from aps_rag_pipeline.stores.tables import EDGES, NODES, SCHEMAS
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import rows
from aps_rag_pipeline.sync.names import GRAPH
from aps_rag_pipeline.sync.text import bodies
from aps_rag_pipeline.sync.workspace import ChangedRecord, StageReport, Workspace, run_stage, start_over

_BATCH = 5000


def build_graph(workspace: Workspace) -> StageReport:
    """Nodes and edges of the records that moved, in the catalog and in the released tables."""
    catalog, tables = workspace.catalog, LanceTables(workspace.home)
    if any(not tables.exists(name) for name in (NODES, EDGES)):
        start_over(catalog, GRAPH, EXTRACTOR)
        for name in (NODES, EDGES):
            tables.table(name, SCHEMAS[name])
    before = catalog.applied(GRAPH, EXTRACTOR)
    # Nodes that a run which died has moved in the catalog, but perhaps not in the table.
    unfinished = {r["node_id"] for r in catalog.rows("select node_id from nodes where changeset > ?", (before,))}

    def work(batch: list[ChangedRecord]) -> Counter[str]:
        changed = batch + _referring(catalog, batch, before)
        counts: Counter[str] = Counter(changed=len(changed))
        rids = [record.rid for record in changed]
        with catalog.transaction():
            touched = unfinished | {r["node_id"] for r in _mentions(catalog, rids)}
            unfinished.clear()
            mentions, edges, asked = extracted(catalog, changed)
            _write_asked(catalog, rids, asked)
            touched |= {mention.node_id for _, mention in mentions}
            _write_mentions(catalog, rids, mentions)
            _write_edges(catalog, rids, edges)
            _refresh_nodes(catalog, sorted(touched))
            passing("graph.commit.before")
        passing("graph.commit.after")
        edge_ids = [r["edge_id"] for r in catalog.rows(f"select edge_id from edges where rid in ({marks(rids)})", rids)]
        counts["nodes"] = _replace(tables, NODES, "node_id", sorted(touched), node_rows(catalog, sorted(touched)))
        counts["edges"] = _replace(tables, EDGES, "edge_id", edge_ids, edge_rows(catalog, rids))
        passing("graph.batch.after")
        return counts

    return run_stage(workspace, GRAPH, EXTRACTOR, work, batch=_BATCH, carry=lambda: tables.carry(NODES, EDGES))


def all_nodes(catalog: Catalog) -> Iterator[rows.Row]:
    """Every node, read as it is consumed."""
    yield from node_rows(catalog, [r["node_id"] for r in catalog.rows("select node_id from nodes where removed = 0")])


def all_edges(catalog: Catalog) -> Iterator[rows.Row]:
    """Every edge, read as it is consumed."""
    rids = catalog.rows("select distinct rid from edges where removed = 0")
    yield from edge_rows(catalog, [r["rid"] for r in rids])


def nodes_after(catalog: Catalog, changeset: int) -> tuple[list[rows.Row], list[str]]:
    """Nodes that moved after a changeset, and the ids of those that went."""
    found = catalog.rows("select node_id, removed from nodes where changeset > ?", (changeset,))
    live = [r["node_id"] for r in found if not r["removed"]]
    return list(node_rows(catalog, live)), [r["node_id"] for r in found if r["removed"]]


def edges_after(catalog: Catalog, changeset: int) -> tuple[list[rows.Row], list[str]]:
    """Edges that moved after a changeset, and the ids of those that went."""
    found = catalog.rows("select edge_id, rid, removed from edges where changeset > ?", (changeset,))
    rids = sorted({r["rid"] for r in found if not r["removed"]})
    return list(edge_rows(catalog, rids)), [r["edge_id"] for r in found if r["removed"]]


def extracted(
    catalog: Catalog, changed: list[ChangedRecord]
) -> tuple[list[tuple[int, NodeMention]], list[tuple[int, EdgeEvidence]], list[tuple[int, str]]]:
    """What live records mention and state, and what they asked for by name; each with its record's number."""
    mentions: list[tuple[int, NodeMention]] = []
    edges: list[tuple[int, EdgeEvidence]] = []
    asked: list[tuple[int, str]] = []
    for record, body in bodies(catalog, changed):
        if not body.access:
            continue
        ids = catalog.rows("select passage_id from passages where rid = ? order by ordinal", (record.rid,))
        resolver = _Resolver(catalog, record)
        nodes, stated = extract(body, record.key, [r["passage_id"] for r in ids], resolver)
        asked.extend((record.rid, target) for target in resolver.targets)
        mentions.extend((record.rid, node) for node in nodes)
        edges.extend((record.rid, edge) for edge in stated)
    return mentions, edges, asked


def _write_asked(catalog: Catalog, rids: list[int], asked: list[tuple[int, str]]) -> None:
    catalog.connection.executemany("delete from asked where rid = ?", ((rid,) for rid in rids))
    catalog.connection.executemany("insert or ignore into asked values (?, ?)", asked)


def _referring(catalog: Catalog, batch: list[ChangedRecord], before: int) -> list[ChangedRecord]:
    """Records that did not move themselves but refer to one that did: it may have come, gone, or changed its key.

    What moved after `before` is extracted in this run anyway, when everything that it may refer to is in the catalog.
    """
    ids = catalog.rows(f"select id, key from records where rid in ({marks(batch)})", [record.rid for record in batch])
    # In slices, since some builds of SQLite take few variables.
    targets = sorted({name for row in ids for name in (row["id"], row["key"])})
    found: dict[int, ChangedRecord] = {}
    for start in range(0, len(targets), _BATCH):
        some = targets[start : start + _BATCH]
        for r in catalog.rows(
            "select r.rid, r.key, r.source, r.feed from asked a join records r on r.rid = a.rid "
            f"where a.target in ({marks(some)}) and r.removed = 0 and r.changeset <= ?",
            (*some, before),
        ):
            found[r["rid"]] = ChangedRecord(r["rid"], r["key"], r["source"], r["feed"], False)
    return list(found.values())


_SOURCE_OF_KIND = {
    "work_request": "work_requests",
    "downtime": "downtime",
    "log_entry": "bely",
    "document": "icms",
    "chat": "teams",
    "wiki": "wiki",
    "process_variable": "epics",
}
#: References that mean a record of the asking source before any other: a manual's chapter, a reply's thread.
_WITHIN_A_SOURCE = ("document", "file", "parent", "reply_to", "supersedes")
_SOURCE_OF_PREFIX = {prefix: source for source, prefix in KEY_PREFIX.items()}


class _Resolver:
    """Finds the citation key of a stated reference, and notes what was asked for.

    A record of the asking source goes first where the kind leaves it open, then one of the asking feed; otherwise a
    reference means a record only when just one can be meant.
    """

    def __init__(self, catalog: Catalog, asking: ChangedRecord) -> None:
        self._catalog = catalog
        self._asking = asking
        self.targets: set[str] = set()

    def __call__(self, kind: str, target: str) -> str | None:
        prefix, _, rest = target.partition(":")
        named = _SOURCE_OF_PREFIX.get(prefix.upper()) if rest else None
        self.targets |= {target, rest} if named else {target}
        found = self._catalog.rows("select key, feed from records where key = ? and removed = 0", (target,))
        if not found and named is not None:
            found = self._by_id(named, rest)
        if not found and kind in _WITHIN_A_SOURCE:
            found = self._by_id(self._asking.source, target)
        if not found and kind in _SOURCE_OF_KIND:
            found = self._by_id(_SOURCE_OF_KIND[kind], target)
        own = [str(r["key"]) for r in found if r["feed"] == self._asking.feed]
        if own:
            return own[0]
        return str(found[0]["key"]) if len(found) == 1 else None

    def _by_id(self, source: str, record_id: str) -> list[Any]:
        return self._catalog.rows(
            "select key, feed from records where source = ? and id = ? and removed = 0 limit 10", (source, record_id)
        )


def _mentions(catalog: Catalog, rids: list[int]) -> list[Any]:
    return catalog.rows(f"select distinct node_id from mentions where rid in ({marks(rids)})", rids)


def _write_mentions(catalog: Catalog, rids: list[int], mentions: list[tuple[int, NodeMention]]) -> None:
    catalog.connection.execute(f"delete from mentions where rid in ({marks(rids)})", rids)
    catalog.connection.executemany(
        "insert or replace into mentions values (?, ?, ?, ?, ?)",
        ((rid, node.node_id, str(node.type), node.name, node.key) for rid, node in mentions),
    )


def _write_edges(catalog: Catalog, rids: list[int], edges: list[tuple[int, EdgeEvidence]]) -> None:
    """Every edge of a changed record counts as moved, since the record's labels travel with it."""
    target = catalog.changeset()
    catalog.connection.execute(
        f"update edges set removed = 1, changeset = ? where rid in ({marks(rids)}) and removed = 0", (target, *rids)
    )
    catalog.connection.executemany(
        "insert or replace into edges values (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
        (
            (e.edge_id, rid, e.src, str(e.relation), e.dst, e.passage_id, e.extractor, e.confidence, target)
            for rid, e in edges
        ),
    )


def _refresh_nodes(catalog: Catalog, node_ids: list[str]) -> None:
    """Bring nodes in line with what mentions them. Labels are joined: whoever may see one evidence may see the node."""
    target = catalog.changeset()
    for start in range(0, len(node_ids), _BATCH):
        some = node_ids[start : start + _BATCH]
        settled = settled_nodes(catalog, some)
        for node_id in some:
            if node_id not in settled:
                catalog.connection.execute(
                    "update nodes set removed = 1, changeset = ? where node_id = ? and removed = 0", (target, node_id)
                )
                continue
            catalog.connection.execute(
                "insert into nodes values (?, ?, ?, ?, ?, ?, 0) on conflict do update set type = excluded.type, "
                "name = excluded.name, key = excluded.key, access = excluded.access, removed = 0, "
                "changeset = excluded.changeset "
                "where (type, name, key, access, removed) is not (excluded.type, excluded.name, excluded.key, "
                "excluded.access, 0)",
                (node_id, *settled[node_id], target),
            )


def settled_nodes(catalog: Catalog, node_ids: list[str]) -> dict[str, tuple[str, str, str | None, str]]:
    """Type, name, key and labels (JSON) of those of the nodes that a live record mentions."""
    labels: dict[str, set[str]] = {}
    mentions: dict[str, list[NodeMention]] = {}
    for row in catalog.connection.execute(
        "select distinct m.node_id, m.type, m.name, m.key, r.access from mentions m "
        f"join records r on r.rid = m.rid where r.removed = 0 and m.node_id in ({marks(node_ids)})",
        node_ids,
    ):
        mentions.setdefault(row["node_id"], []).append(NodeMention(*row[:4]))
        labels.setdefault(row["node_id"], set()).update(rows.labels(row["access"]))
    settled = {node_id: settle(found) for node_id, found in mentions.items()}
    return {
        node_id: (str(node.type), node.name, node.key, json.dumps(sorted(labels[node_id])))
        for node_id, node in settled.items()
    }


def node_rows(catalog: Catalog, node_ids: Iterable[str]) -> Iterator[rows.Row]:
    wanted = list(node_ids)
    for start in range(0, len(wanted), _BATCH):
        some = wanted[start : start + _BATCH]
        for r in catalog.rows(f"select * from nodes where removed = 0 and node_id in ({marks(some)})", some):
            yield {
                "node_id": r["node_id"], "type": r["type"], "name": r["name"], "key": r["key"],
                "access": json.loads(r["access"]),
            }  # fmt: skip


def edge_rows(catalog: Catalog, rids: list[int]) -> Iterator[rows.Row]:
    for start in range(0, len(rids), _BATCH):
        some = rids[start : start + _BATCH]
        for r in catalog.rows(
            "select e.*, r.key, r.source, r.feed, r.access from edges e join records r on r.rid = e.rid "
            f"where e.removed = 0 and r.removed = 0 and e.rid in ({marks(some)}) order by e.edge_id",
            some,
        ):
            yield {
                **rows.origin(r), "edge_id": r["edge_id"], "src": r["src"], "relation": r["relation"], "dst": r["dst"],
                "passage_id": r["passage_id"], "extractor": r["extractor"], "confidence": r["confidence"],
            }  # fmt: skip


def _replace(tables: LanceTables, name: str, column: str, ids: list[str], made: Iterator[rows.Row]) -> int:
    return tables.replace(name, SCHEMAS[name], column, ids, [rows.batch(list(made), SCHEMAS[name])])
