"""Nodes: what the mentions of live records make of each, against the catalog and LanceDB."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from aps_rag_pipeline.audit.catalog import STORE
from aps_rag_pipeline.audit.comparing import differences
from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.audit.rows import Sides
from aps_rag_pipeline.audit.scope import Scope
from aps_rag_pipeline.audit.spans import Span
from aps_rag_pipeline.stores.catalog import Catalog, marks
from aps_rag_pipeline.stores.tables import NODES, SCHEMAS
from aps_rag_pipeline.sync import rows
from aps_rag_pipeline.sync.graph import settled_nodes

_COLUMNS = ("type", "name", "key", "access")
_Settled = Mapping[str, tuple[str, str, str | None, str]]


def check_nodes(catalog: Catalog, sides: Sides, scope: Scope, findings: Findings) -> None:
    """Both directions, labels included, a stretch of ids at a time."""
    # The labels of records that do not agree with themselves say nothing about the nodes that they mention.
    doubtful = _mentioned(catalog, findings.damage.unread)
    for span in scope.nodes():
        settled = settled_nodes(catalog, list(span.ids))
        wanted = {node_id: node for node_id, node in settled.items() if node_id not in doubtful}
        _compare_catalog(catalog, wanted, doubtful, span, findings)
        for label, found in sides.rows(NODES, span.condition, SCHEMAS[NODES].names, findings):
            found = found.filter(pc.invert(pc.is_in(found["node_id"], pa.array(sorted(doubtful), pa.string()))))
            for difference in differences(_table(wanted), found, "node_id"):
                findings.add(difference.kind, label, difference.id, difference.problem, difference.key)
                if label in sides.released:
                    findings.damage.republish = True
                else:
                    findings.damage.nodes.add(difference.id)


def mentioning(catalog: Catalog, node_ids: list[str]) -> set[int]:
    """A live record for each of these nodes that mentions it: when it is looked at again, so is the node."""
    found = catalog.rows(
        "select min(m.rid) as rid from mentions m join records r on r.rid = m.rid "
        f"where r.removed = 0 and m.node_id in ({marks(node_ids)}) group by m.node_id",
        node_ids,
    )
    return {row["rid"] for row in found}


def _mentioned(catalog: Catalog, rids: set[int]) -> set[str]:
    found = (catalog.rows("select node_id from mentions where rid = ?", (rid,)) for rid in rids)
    return {row["node_id"] for some in found for row in some}


def _compare_catalog(
    catalog: Catalog, wanted: _Settled, doubtful: set[str], span: Span[str], findings: Findings
) -> None:
    there = {
        row["node_id"]: tuple(row[name] for name in _COLUMNS)
        for row in catalog.connection.execute(f"select * from nodes where removed = 0 and {span.condition}")
    }
    findings.checked["nodes"] += len(there)
    for node_id in sorted((wanted.keys() | there.keys()) - doubtful):
        if there.get(node_id) == wanted.get(node_id):
            continue
        key = (wanted.get(node_id) or there[node_id])[2] or ""
        if node_id not in there:
            findings.add("mention_without_node", STORE, node_id, "it is mentioned, but is no node", key)
        elif node_id not in wanted:
            findings.add("node_without_mention", STORE, node_id, "no record mentions it", key)
            findings.damage.unmentioned.add(node_id)
        else:
            pairs = zip(_COLUMNS, there[node_id], wanted[node_id], strict=True)
            said = ", ".join(name for name, a, b in pairs if a != b)
            findings.add("wrong_node", STORE, node_id, f"differs in {said} from what its mentions make it", key)
        findings.damage.nodes.add(node_id)


def _table(settled: _Settled) -> pa.Table:
    made = [
        {"node_id": node_id, "type": kind, "name": name, "key": key, "access": rows.labels(access)}
        for node_id, (kind, name, key, access) in settled.items()
    ]
    return pa.Table.from_batches([rows.batch(made, SCHEMAS[NODES])])
