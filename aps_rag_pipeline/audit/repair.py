"""Mending what an audit found: wrong rows are marked for the stages, which write them anew, and a release is cut."""

from __future__ import annotations

from aps_rag_pipeline.audit.findings import Damage, Findings
from aps_rag_pipeline.audit.nodes import mentioning
from aps_rag_pipeline.audit.pins import mend_releases, retire, whole_versions
from aps_rag_pipeline.audit.refetching import read_again
from aps_rag_pipeline.audit.rows import BM25
from aps_rag_pipeline.audit.run import audit
from aps_rag_pipeline.stores import sparse
from aps_rag_pipeline.stores.bolt import GraphError
from aps_rag_pipeline.stores.bolt_server import address_for
from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.graph import Projection, home_id
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.tables import EDGES, NODES, PASSAGES, RECORDS, chunks_table, sql_list
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import pipeline
from aps_rag_pipeline.sync.graph import all_edges, all_nodes
from aps_rag_pipeline.sync.marts import mart_path
from aps_rag_pipeline.sync.model import ConfiguredModel
from aps_rag_pipeline.sync.names import DENSE, GRAPH, PROJECTION, PROJECTION_VERSION
from aps_rag_pipeline.sync.projection import project
from aps_rag_pipeline.sync.workspace import Workspace, start_over, touch

#: What one repair uncovers the next one mends; damage that outlives these is of a kind that repairing cannot help.
_ROUNDS = 3
_SOME = 5000


def audit_and_repair(
    workspace: Workspace, model: ConfiguredModel, *, deep: bool = False
) -> tuple[Findings, list[str], Findings]:
    """Look, mend, and look again; gives what was found, what was done, a sentence each, and what is left. Needs the
    writer lock."""
    first = found = audit(workspace, model, deep=deep)
    done: list[str] = []
    if found.damage.refetchable:
        done += read_again(workspace, found.damage)
    for _ in range(_ROUNDS):
        if not found.damage.repairable:
            break
        done += _mend(workspace, model, found.damage)
        found = audit(workspace, model, deep=deep)
    if first.damage.outdated:
        done.append("stages ran with another model, cut or version than they would now: `aps-rag sync` runs them again")
    return first, done, found


def _mend(workspace: Workspace, model: ConfiguredModel, damage: Damage) -> list[str]:
    done, lost = mend_releases(workspace.home, damage)
    if damage.outdated:  # with damaged tables the sync that is needed would stop there
        kept = _set_back(workspace, damage)
        return done + kept + _drop_tables(workspace.home, damage)
    newer = bool(lost) or damage.republish or _needs_stages(damage)
    if newer:
        done += _mark(workspace, model, damage)
        done += _drop_tables(workspace.home, damage)
        _delete(workspace, model, damage)
    if newer or damage.unfinished:
        reports = pipeline.complete(workspace)
        if reports[-1].counts["changed"]:
            done.append(f"published release {reports[-1].counts['number']}")
    for number in lost:
        retire(workspace.home, number)
        done.append(f"dropped release {number}, which could not be mended")
    return done + _mend_projection(workspace, damage)


def _needs_stages(damage: Damage) -> bool:
    sets = (damage.records, damage.strangers, damage.nodes, damage.edges, damage.unmentioned, damage.vectors)
    return any((*sets, damage.stores, damage.marts))


def _mark(workspace: Workspace, model: ConfiguredModel, damage: Damage) -> list[str]:
    """Open a changeset for the records that are written anew, and drop from the catalog what must not be there."""
    catalog = workspace.catalog
    with catalog.transaction() as connection:
        number = catalog.new_changeset("repair")
        connection.executemany(
            "delete from embeddings where model = ? and hash = ?",
            ((model.description.fingerprint, found) for found in damage.vectors),
        )
        _drop_strangers(catalog, damage.strangers, number)
        connection.executemany(
            "update nodes set removed = 1, changeset = ? where node_id = ?",
            ((number, node_id) for node_id in damage.unmentioned),
        )
        # A record that cannot be read is left as it is until its source has given it again.
        rids = (damage.records | _mentioning(catalog, damage.nodes)) - damage.unread
        # Without a hash they are cut anew, whatever the hash said.
        connection.executemany("update passages set hash = '' where rid = ?", ((rid,) for rid in rids))
        connection.executemany("update chunks set hash = x'' where rid = ?", ((rid,) for rid in rids))
        touch(catalog, rids, "repair", number)
    said = {"record": len(rids), "unknown record number": len(damage.strangers), "node": len(damage.unmentioned)}
    return [f"marked {count} {noun}{'s' * (count != 1)} for writing anew" for noun, count in said.items() if count]


def _mentioning(catalog: Catalog, nodes: set[str]) -> set[int]:
    ids = sorted(nodes)
    found: set[int] = set()
    for start in range(0, len(ids), _SOME):
        found |= mentioning(catalog, ids[start : start + _SOME])
    return found


def _drop_strangers(catalog: Catalog, rids: set[int], number: int) -> None:
    for table in ("passages", "chunks", "mentions", "asked", "attachments"):
        catalog.connection.executemany(f"delete from {table} where rid = ?", ((rid,) for rid in rids))
    catalog.connection.executemany(
        "update edges set removed = 1, changeset = ? where rid = ?", ((number, rid) for rid in rids)
    )


def _set_back(workspace: Workspace, damage: Damage) -> list[str]:
    """Damaged tables that a release which serves needs, as that release has them: it goes on until the sync that may
    take hours has put another in its place. They count as damaged no more."""
    tables, catalog, done = LanceTables(workspace.home), workspace.catalog, []
    for name, version in whole_versions(workspace.home, damage.stores).items():
        stage = GRAPH if name in (NODES, EDGES) else DENSE
        start_over(catalog, stage, str(catalog.value("select version from stages where stage = ?", (stage,))))
        tables.set_back(name, version)
        damage.stores.discard(name)
        done.append(f"set the damaged table {name} back to what is released")
    return done


def _drop_tables(home: Home, damage: Damage) -> list[str]:
    """Damaged tables with all of their versions: their stages build them anew."""
    tables, dropped = LanceTables(home), sorted(damage.stores - {BM25})
    there = [name for name in dropped if tables.exists(name)]
    for name in dropped:
        tables.drop(name)
    return [f"dropped the damaged table {name}" for name in there]


def _delete(workspace: Workspace, model: ConfiguredModel, damage: Damage) -> None:
    """Take out of the indexes what no stage would: rows of records that the catalog does not know, nodes and edges."""
    tables, home = LanceTables(workspace.home), workspace.home
    strangers = sorted(damage.strangers)
    for name in (RECORDS, PASSAGES, chunks_table(model.description.fingerprint), EDGES):
        _delete_rows(tables, name, "rid", strangers)
    _delete_rows(tables, NODES, "node_id", sorted(damage.nodes))
    _delete_rows(tables, EDGES, "edge_id", sorted(damage.edges))
    for name in damage.marts:
        mart_path(workspace, name).unlink(missing_ok=True)
    if BM25 in damage.stores:
        sparse.clear(home.tantivy)
    elif strangers and sparse.exists(home.tantivy):
        writer = sparse.SparseWriter(home.tantivy)
        writer.replace(strangers, ())
        writer.commit()
        writer.close()


def _delete_rows(tables: LanceTables, name: str, column: str, values: list[int] | list[str]) -> None:
    for start in range(0, len(values), _SOME):
        if tables.exists(name):
            tables.table(name).delete(f"{column} in ({sql_list(values[start : start + _SOME])})")


def _mend_projection(workspace: Workspace, damage: Damage) -> list[str]:
    """Build the projection anew where it was wrong; elsewhere carry to it what the repair moved."""
    address, catalog = address_for(workspace.settings, workspace.home), workspace.catalog
    if address is None:
        return []
    target = catalog.changeset()
    try:
        if not damage.projection:
            project(workspace)
            return []
        with Projection(address) as projection:
            projection.rebuild(home_id(workspace.home), target, all_nodes(catalog), all_edges(catalog))
    except GraphError as error:
        return [f"the projection could not be mended: {error}"]
    with catalog.transaction():
        catalog.set_applied(PROJECTION, PROJECTION_VERSION, target)
    return ["built the projection anew"]
