"""The projection of the tables `nodes` and `edges` to a Bolt server, for people and tools that speak Cypher.

One label per entity type, one relationship type per relation, access labels as a property. A marker node says whose
projection it is and of which changeset, so that one of another home or an older state is seen and built anew, and a
database that holds something else is left alone. One writer at a time is assumed: the home's writer lock.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from aps_rag_pipeline.knowledge.entities import ENTITY_TYPES, RELATIONS
from aps_rag_pipeline.stores.bolt import GraphAddress, GraphError, connect
from aps_rag_pipeline.stores.graph_rows import (
    EDGE_PROPERTIES,
    Differences,
    GraphEdge,
    GraphNode,
    Row,
    compare,
    edge_of,
    node_of,
    stored_edge,
    stored_node,
)
from aps_rag_pipeline.stores.home import Home

if TYPE_CHECKING:
    import neo4j

log = logging.getLogger(__name__)

MARKER = "ProjectionState"
#: Raise it when the same rows would now be projected otherwise: every projection is then built anew.
FORMAT = 1
_BATCH = 2000
_NOTHING = -1
#: Written with the edge: setting them afterwards takes the small server nearly twice as long.
_EDGE_PROPERTIES = ", ".join(f"{name}: row.{name}" for name in EDGE_PROPERTIES)

_Item = TypeVar("_Item")
_Group = TypeVar("_Group")
#: Label of each node met so far, by id: a lookup without the label would use no index.
_Labels = dict[str, str]


@dataclass(frozen=True)
class GraphChanges:
    """What moved in `nodes` and `edges` up to `changeset` since the changeset that the caller knows projected."""

    changeset: int
    nodes: Sequence[Row] = ()
    removed_nodes: Sequence[str] = ()
    edges: Sequence[Row] = ()
    removed_edges: Sequence[str] = ()


@dataclass(frozen=True)
class State:
    """What the marker says: `changeset` is wholly there, `target` is what was being written."""

    home: str
    changeset: int
    target: int
    format: int


@dataclass
class Report:
    """What a projection run did. `rebuilt` says why it started over; empty when it was incremental."""

    changeset: int
    rebuilt: str = ""
    nodes: int = 0
    edges: int = 0
    removed_nodes: int = 0
    removed_edges: int = 0
    seconds: float = 0.0

    @property
    def changed(self) -> int:
        return self.nodes + self.edges + self.removed_nodes + self.removed_edges


def sync_projection(
    address: GraphAddress,
    home: Home,
    previous_changeset: int | None,
    nodes: Iterable[Row],
    edges: Iterable[Row],
    changes: GraphChanges,
) -> Report:
    """Bring the projection to `changes.changeset`.

    `nodes` and `edges` are all rows of that changeset and are consumed only when the projection must be built anew: so
    give generators. `changes` are those after `previous_changeset`.

    Raises:
        GraphError: the server cannot be used, the database belongs to something else, or an edge leads nowhere.
    """
    began = time.monotonic()
    report = Report(changes.changeset)
    with Projection(address) as projection:
        me, state = home_id(home), projection.state()
        wanted = changes.changeset
        if state is not None and state == State(me, wanted, wanted, FORMAT):
            return report
        reason = _why_anew(state, me, previous_changeset, wanted)
        if reason:
            log.info("building the projection at %s anew: %s", address.uri, reason)
            projection.rebuild(me, wanted, nodes, edges, report)
            report.rebuilt = reason
        else:
            projection.mark(State(me, previous_changeset or 0, wanted, FORMAT))
            projection.apply(changes.nodes, changes.removed_nodes, changes.edges, changes.removed_edges, report)
            projection.mark(State(me, wanted, wanted, FORMAT))
    report.seconds = time.monotonic() - began
    return report


def _why_anew(state: State | None, me: str, previous: int | None, wanted: int) -> str:
    if state is None:
        return "the database was empty"
    if state.home != me:
        return "it was the projection of another home"
    if state.format != FORMAT:
        return "it was written by another version"
    if state.changeset == _NOTHING:
        return "the last build was cut off"
    # What was cut off on the way to a target at or before `wanted` is within the changes after `previous`.
    if state.changeset != previous or state.target not in range(previous, wanted + 1):
        return f"it holds changeset {state.changeset}, not {previous}"
    return ""


def home_id(home: Home) -> str:
    """The random name of a home, made once: a path would name two homes on two machines alike."""
    path = home.graph / "home-id"
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = uuid.uuid4().hex
        path.write_text(made, encoding="ascii")
        return made


class Projection:
    """An open connection to a projection. Use it as a context manager."""

    def __init__(self, address: GraphAddress) -> None:
        self.address = address
        self._connection = connect(address)

    def __enter__(self) -> Projection:
        self._driver = self._connection.__enter__()
        self._session = self._driver.session(database=self.address.database)
        return self

    def __exit__(self, *error: Any) -> bool | None:
        self._session.close()
        return self._connection.__exit__(*error)

    # the marker

    def state(self) -> State | None:
        """What the marker says, None in an empty database.

        Raises:
            GraphError: the database holds something that is no projection.
        """
        found = list(self._stream(f"MATCH (m:{MARKER}) RETURN m.home, m.changeset, m.target, m.format"))
        if len(found) == 1:
            return State(*found[0])
        if found:  # two writers at once have been here
            return State("", _NOTHING, _NOTHING, 0)
        others = next(self._stream("MATCH (n) RETURN count(n)"))[0]
        if others:
            raise GraphError(
                f"{self.address.uri}: database {self.address.database!r} holds {others} nodes that are no projection "
                "of this pipeline and is left alone; name an empty database in graph.database"
            )
        return None

    def mark(self, state: State) -> None:
        """Write the marker, in place of any other."""
        values = {"home": state.home, "changeset": state.changeset, "target": state.target, "format": state.format}
        self._write(
            [(f"MATCH (m:{MARKER}) DELETE m", {}), (f"CREATE (m:{MARKER}) SET m = $values", {"values": values})]
        )

    # writing

    def rebuild(
        self, home: str, changeset: int, nodes: Iterable[Row], edges: Iterable[Row], report: Report | None = None
    ) -> Report:
        """Empty the projection and write all rows. Cut off at any point, it is found unfinished by the next run."""
        report = report or Report(changeset)
        self.mark(State(home, _NOTHING, changeset, FORMAT))
        for relation in RELATIONS:
            self._delete_all(f"MATCH ()-[x:{relation}]->() WITH x LIMIT $n DELETE x RETURN count(*) AS n")
        for label in ENTITY_TYPES:
            self._delete_all(f"MATCH (x:{label}) WITH x LIMIT $n DETACH DELETE x RETURN count(*) AS n")
        self._create_indexes()
        labels: _Labels = {}
        self._write_nodes((node_of(row) for row in nodes), labels, report, anew=True)
        self._write_edges((edge_of(row) for row in edges), labels, report, anew=True)
        self.mark(State(home, changeset, changeset, FORMAT))
        return report

    def apply(
        self,
        changed_nodes: Iterable[Row],
        removed_nodes: Iterable[str],
        changed_edges: Iterable[Row],
        removed_edges: Iterable[str],
        report: Report | None = None,
    ) -> Report:
        """Write what changed and remove what went; doing it twice is doing it once."""
        report = report or Report(_NOTHING)
        for ids in _batches(removed_edges):
            report.removed_edges += sum(self._delete_edges(relation, ids) for relation in RELATIONS)
        labels: _Labels = {}
        self._write_nodes((node_of(row) for row in changed_nodes), labels, report, anew=False)
        # Before the nodes go, so that an edge which moved away from one of them is not lost with it.
        self._write_edges((edge_of(row) for row in changed_edges), labels, report, anew=False)
        for ids in _batches(removed_nodes):
            for label in ENTITY_TYPES:
                delete = f"MATCH (n:{label}) WHERE n.node_id IN $ids DETACH DELETE n RETURN count(*) AS n"
                report.removed_nodes += self._write([(delete, {"ids": ids})])
        return report

    def _write_nodes(self, nodes: Iterable[GraphNode], labels: _Labels, report: Report, *, anew: bool) -> None:
        for label, batch in _grouped(nodes, lambda node: node.label):
            ids = [node.id for node in batch]
            labels.update(dict.fromkeys(ids, label))
            statements = []
            if not anew:
                for other in ENTITY_TYPES:
                    if other != label:
                        relabel = f"MATCH (n:{other}) WHERE n.node_id IN $ids REMOVE n:{other} SET n:{label}"
                        statements.append((relabel, {"ids": self._ids_under(other, ids)}))
            rows = [node.properties for node in batch]
            merge = f"UNWIND $rows AS row MERGE (n:{label} {{node_id: row.node_id}}) SET n = row RETURN count(*) AS n"
            report.nodes += self._write([*((s, p) for s, p in statements if p["ids"]), (merge, {"rows": rows})])

    def _write_edges(self, edges: Iterable[GraphEdge], labels: _Labels, report: Report, *, anew: bool) -> None:
        def kind(edge: GraphEdge) -> tuple[str, str, str]:
            return labels[edge.src], edge.relation, labels[edge.dst]

        for some in _batches(edges, 5 * _BATCH):
            self._look_up(labels, {end for edge in some for end in (edge.src, edge.dst)})
            for (src, relation, dst), batch in _grouped(some, kind):
                # Not MERGE: it walks all edges of its first node, and is quadratic where that is a busy one.
                delete = f"MATCH ()-[r:{relation}]->() WHERE r.edge_id IN $ids DELETE r"
                create = (
                    f"UNWIND $rows AS row MATCH (a:{src} {{node_id: row.src}}) MATCH (b:{dst} {{node_id: row.dst}}) "
                    f"CREATE (a)-[r:{relation} {{{_EDGE_PROPERTIES}}}]->(b) RETURN count(*) AS n"
                )
                rows = [{"src": edge.src, "dst": edge.dst, **edge.properties} for edge in batch]
                statements: list[tuple[str, dict[str, Any]]] = [(create, {"rows": rows})]
                if not anew:
                    statements.insert(0, (delete, {"ids": [edge.id for edge in batch]}))
                report.edges += self._write(statements)

    def _look_up(self, labels: _Labels, ids: set[str]) -> None:
        """Labels of nodes that are on the server already.

        Raises:
            GraphError: one of them is not.
        """
        for batch in _batches(sorted(ids - labels.keys())):
            for label in ENTITY_TYPES:
                labels.update(dict.fromkeys(self._ids_under(label, batch), label))
        lost = sorted(ids - labels.keys())
        if lost:
            raise GraphError(
                f"{len(lost)} nodes that edges lead to are not there, the first: {', '.join(lost[:3])}; "
                "run `aps-rag audit --repair`"
            )

    def _ids_under(self, label: str, ids: list[str]) -> list[str]:
        found = self._stream(f"MATCH (n:{label}) WHERE n.node_id IN $ids RETURN n.node_id", ids=ids)
        return [node_id for (node_id,) in found]

    def _delete_edges(self, relation: str, ids: list[str]) -> int:
        delete = f"MATCH ()-[r:{relation}]->() WHERE r.edge_id IN $ids DELETE r RETURN count(*) AS n"
        return self._write([(delete, {"ids": ids})])

    def _delete_all(self, statement: str) -> None:
        while self._write([(statement, {"n": _BATCH})]):
            pass

    def _create_indexes(self) -> None:
        for label in ENTITY_TYPES:
            name = f"aps_rag_{label.lower()}"
            self._schema(f"CREATE CONSTRAINT {name}_id IF NOT EXISTS FOR (n:{label}) REQUIRE n.node_id IS UNIQUE")
            self._schema(f"CREATE INDEX {name}_name IF NOT EXISTS FOR (n:{label}) ON (n.name)")
        for relation in RELATIONS:
            name = f"aps_rag_{relation.lower()}"
            self._schema(f"CREATE INDEX {name}_id IF NOT EXISTS FOR ()-[r:{relation}]-() ON (r.edge_id)")

    # reading back

    def verify(self, nodes: Iterable[Row], edges: Iterable[Row]) -> Differences:
        """Compare every row with what the server holds, in both directions, by id, type, ends and properties."""
        return Differences(
            compare((node_of(row) for row in nodes), self._stored_nodes()),
            compare((edge_of(row) for row in edges), self._stored_edges()),
        )

    def _stored_nodes(self) -> Iterator[GraphNode]:
        for label in ENTITY_TYPES:
            for (properties,) in self._stream(f"MATCH (n:{label}) RETURN properties(n)"):
                yield stored_node(label, properties)

    def _stored_edges(self) -> Iterator[GraphEdge]:
        for relation in RELATIONS:
            query = f"MATCH (a)-[r:{relation}]->(b) RETURN a.node_id, b.node_id, properties(r)"
            for src, dst, properties in self._stream(query):
                yield stored_edge(relation, src, dst, properties)

    # statements: every name in them is one of ours, every value is a parameter

    def _write(self, statements: Sequence[tuple[str, dict[str, Any]]]) -> int:
        """Run statements in one transaction, and give the number that the last one returns as `n`.

        An explicit transaction, because the small server otherwise commits every row of a statement by itself.
        """

        def work(transaction: neo4j.ManagedTransaction) -> int:
            found: list[dict[str, Any]] = []
            for statement, values in statements:
                found = transaction.run(statement, values).data()
            return int(found[0].get("n", 0)) if found else 0

        return self._session.execute_write(work)

    def _schema(self, statement: str) -> None:
        self._session.run(statement).consume()

    def _stream(self, statement: str, **values: Any) -> Iterator[tuple[Any, ...]]:
        for record in self._session.run(statement, values):
            yield tuple(record)


def _batches(items: Iterable[_Item], size: int = _BATCH) -> Iterator[list[_Item]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def _grouped(items: Iterable[_Item], key: Callable[[_Item], _Group]) -> Iterator[tuple[_Group, list[_Item]]]:
    """Batches of items with one key; what is not full comes at the end."""
    waiting: dict[_Group, list[_Item]] = {}
    for item in items:
        group = key(item)
        batch = waiting.setdefault(group, [])
        batch.append(item)
        if len(batch) == _BATCH:
            yield group, waiting.pop(group)
    yield from waiting.items()
