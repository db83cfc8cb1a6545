"""The projection on the real server: equal to the tables after every step, and careful with what is not its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aps_rag_pipeline.knowledge.entities import ENTITY_TYPES, RELATIONS
from aps_rag_pipeline.stores import graph
from aps_rag_pipeline.stores.bolt import GraphAddress, GraphError, connect
from aps_rag_pipeline.stores.bolt_server import down, up
from aps_rag_pipeline.stores.cypher import WriteRefused, query, run_query
from aps_rag_pipeline.stores.graph import MARKER, GraphChanges, Projection, Report, State, home_id, sync_projection
from aps_rag_pipeline.stores.home import Home

pytest.importorskip("arcadedb_embedded", reason="the wheel of the Bolt server is not installed")

Rows = list[dict[str, Any]]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphAddress]:
    home = Home(tmp_path_factory.mktemp("graph"))
    yield up(home)
    down(home)


@pytest.fixture
def address(server: GraphAddress) -> GraphAddress:
    """The server with an empty database."""
    execute(server, "MATCH (n) DETACH DELETE n")
    return server


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def execute(address: GraphAddress, statement: str) -> None:
    with connect(address) as driver:
        driver.execute_query(statement, database_=address.database)


def node(node_id: str, kind: str, *, access: tuple[str, ...] = ("public",)) -> dict[str, Any]:
    key = None if node_id.startswith(f"{kind}:") else node_id
    name = key or node_id.partition(":")[2]
    return {"node_id": node_id, "type": kind, "name": name, "key": key, "access": list(access)}


def edge(src: str, relation: str, dst: str, *, key: str = "", access: tuple[str, ...] = ("public",)) -> dict[str, Any]:
    key = key or src
    return {
        "rid": 1, "key": key, "source": "bely", "feed": "log", "access": list(access),
        "edge_id": f"{key}/{src}/{relation}/{dst}", "src": src, "relation": relation, "dst": dst,
        "passage_id": f"{key}#0", "extractor": "structure:1", "confidence": 0.800000011920929,
    }  # fmt: skip


def facility() -> tuple[Rows, Rows]:
    nodes = [
        node("BELY:1", "LogEntry"),
        node("BELY:2", "LogEntry", access=("ops", "public")),
        node("WRQ:20417", "WorkRequest"),
        node("DOWN:2025-0412", "DowntimeEvent"),
        node("ICMS:APS_1", "Document"),
        node("PV:S-DCCT:CurrentM", "ProcessVariable"),
        node("System:rf", "System"),
        node("Fault:thyratron 'misfire'", "Fault"),
        node("Person:zoë \\ o'neil", "Person"),
    ]
    edges = [
        edge("BELY:1", "MENTIONS", "System:rf"),
        edge("BELY:2", "MENTIONS", "System:rf", access=("ops",)),
        edge("BELY:2", "REPLIES_TO", "BELY:1"),
        edge("DOWN:2025-0412", "CAUSED_BY", "Fault:thyratron 'misfire'"),
        edge("DOWN:2025-0412", "RESOLVED_BY", "WRQ:20417"),
        edge("WRQ:20417", "FOLLOWS_PROCEDURE", "ICMS:APS_1"),
        edge("BELY:1", "REPORTED_BY", "Person:zoë \\ o'neil"),
        edge("BELY:1", "REFERENCES", "WRQ:20417"),
        edge("BELY:1", "REFERENCES", "WRQ:20417", key="BELY:2"),  # the same statement by another record
    ]
    return nodes, edges


def differences(address: GraphAddress, nodes: Rows, edges: Rows) -> list[str]:
    with Projection(address) as projection:
        return projection.verify(nodes, edges).lines()


def build(address: GraphAddress, home: Home, nodes: Rows, edges: Rows, changeset: int = 1) -> Report:
    return sync_projection(address, home, None, iter(nodes), iter(edges), GraphChanges(changeset))


def never() -> Iterator[dict[str, Any]]:
    raise AssertionError("all rows were asked for")
    yield {}


def test_first_build_is_equal_and_the_next_run_does_nothing(address: GraphAddress, home: Home) -> None:
    nodes, edges = facility()
    report = build(address, home, nodes, edges)
    assert (report.rebuilt, report.nodes, report.edges) == ("the database was empty", len(nodes), len(edges))
    assert differences(address, nodes, edges) == []
    again = sync_projection(address, home, 1, never(), never(), GraphChanges(1))
    assert (again.changed, again.rebuilt) == (0, "")
    with Projection(address) as projection:
        assert projection.state() == State(home_id(home), 1, 1, 1)


def test_people_find_labels_types_and_labels_of_access(address: GraphAddress, home: Home) -> None:
    build(address, home, *facility())
    answer = run_query(
        address,
        "MATCH (d:DowntimeEvent)-[c:CAUSED_BY]->(f:Fault), (d)-[:RESOLVED_BY]->(w:WorkRequest) "
        "RETURN d.key AS event, f.name AS fault, w.key AS request, c.confidence AS sure, c.passage_id AS passage",
    )
    assert answer.columns == ["event", "fault", "request", "sure", "passage"]
    assert answer.rows == [["DOWN:2025-0412", "thyratron 'misfire'", "WRQ:20417", 0.8, "DOWN:2025-0412#0"]]
    restricted = run_query(address, "MATCH (n)-[r]->() WHERE NOT 'public' IN r.access RETURN n.key, r.access")
    assert restricted.rows == [["BELY:2", ["ops"]]]
    whole = run_query(address, "MATCH p = (:LogEntry)-[:REPLIES_TO]->(:LogEntry) RETURN p, nodes(p)[0] AS first")
    path, first = whole.rows[0]
    assert isinstance(path, dict)
    assert [each["properties"]["node_id"] for each in path["nodes"]] == ["BELY:2", "BELY:1"]
    assert first == {
        "labels": ["LogEntry"],
        "properties": {"node_id": "BELY:2", "name": "BELY:2", "key": "BELY:2", "access": ["ops", "public"]},
    }


def test_changes_are_applied_and_only_they(address: GraphAddress, home: Home) -> None:
    nodes, edges = facility()
    build(address, home, nodes, edges)
    changed = [
        {**nodes[1], "access": ["ops"]},  # relabelled
        {**nodes[4], "type": "Procedure"},  # the document says now that it is a procedure: its edges stay
        node("System:linac", "System"),
    ]
    new_edges = [
        {**edges[1], "access": ["ops", "public"]},
        edge("BELY:2", "AFFECTS", "System:linac"),
        edge("BELY:2", "FOLLOWS_PROCEDURE", "ICMS:APS_1"),
    ]
    gone = ["Fault:thyratron 'misfire'", "DOWN:2025-0412"]
    gone_edges = [e["edge_id"] for e in edges if "DOWN:2025-0412" in (e["src"], e["dst"])]
    changes = GraphChanges(2, changed, gone, new_edges, gone_edges)
    report = sync_projection(address, home, 1, never(), never(), changes)
    assert (report.nodes, report.removed_nodes, report.edges, report.removed_edges) == (3, 2, 3, 2)

    by_id = {n["node_id"]: n for n in (*nodes, *changed) if n["node_id"] not in gone}
    edges_by_id = {e["edge_id"]: e for e in (*edges, *new_edges) if e["edge_id"] not in gone_edges}
    assert differences(address, list(by_id.values()), list(edges_by_id.values())) == []
    assert run_query(address, "MATCH (n {node_id: 'ICMS:APS_1'}) RETURN labels(n)").rows == [[["Procedure"]]]
    assert run_query(address, "MATCH (n) WHERE n.node_id STARTS WITH 'DOWN' RETURN n").rows == []

    with Projection(address) as projection:  # doing it twice is doing it once
        projection.apply(changed, gone, new_edges, gone_edges)
    assert differences(address, list(by_id.values()), list(edges_by_id.values())) == []


def test_an_edge_that_moved_leaves_nothing_behind(address: GraphAddress, home: Home) -> None:
    nodes, edges = facility()
    build(address, home, nodes, edges)
    moved = {**edges[0], "dst": "ICMS:APS_1"}
    left = [n for n in nodes if n["node_id"] != "System:rf"]
    kept = [moved, *edges[2:]]
    changes = GraphChanges(2, [], ["System:rf"], [moved], [edges[1]["edge_id"]])
    sync_projection(address, home, 1, never(), never(), changes)
    assert differences(address, left, kept) == []


def test_verify_sees_every_kind_of_difference_in_both_directions(address: GraphAddress, home: Home) -> None:
    nodes, edges = facility()
    build(address, home, nodes, edges)
    for statement in (
        "MATCH (n:Person) SET n.name = 'somebody else'",
        "MATCH (n:Fault) DETACH DELETE n",
        "CREATE (:Location {node_id: 'Location:invented', name: 'invented', access: ['public']})",
        "CREATE (:Tool {name: 'drawn by hand'})",
        "MATCH ()-[r:REPLIES_TO]->() SET r.access = ['ops']",
        "MATCH (a:LogEntry {node_id: 'BELY:1'}), (b:System) CREATE (a)-[:AFFECTS {edge_id: 'x'}]->(b)",
        "MATCH (a:WorkRequest)-[r:FOLLOWS_PROCEDURE]->(b) CREATE (a)-[s:FOLLOWS_PROCEDURE]->(b) SET s = properties(r)",
    ):
        execute(address, statement)
    with Projection(address) as projection:
        found = projection.verify(nodes, edges)
    assert found
    assert found.nodes.missing == ["Fault:thyratron 'misfire'"]
    assert found.nodes.extra == ["(Tool without node_id)", "Location:invented"]
    assert found.nodes.changed == ["Person:zoë \\ o'neil"]
    assert found.edges.missing == [edges[3]["edge_id"]]
    assert found.edges.extra == ["x"]
    assert found.edges.changed == [edges[2]["edge_id"]]
    assert found.edges.twice == [edges[5]["edge_id"]]
    assert len(found.lines()) == 7
    with Projection(address) as projection:
        projection.rebuild(home_id(home), 1, nodes, edges)
    assert differences(address, nodes, edges) == []


def test_the_projection_of_another_home_is_built_anew(address: GraphAddress, home: Home, tmp_path: Path) -> None:
    build(address, home, *facility())
    other = Home(tmp_path / "other")
    nodes, edges = (
        [node("BELY:9", "LogEntry"), node("Tool:sddsplot", "Tool")],
        [edge("BELY:9", "MENTIONS", "Tool:sddsplot")],
    )
    report = sync_projection(address, other, 1, nodes, edges, GraphChanges(1))
    assert report.rebuilt == "it was the projection of another home"
    assert differences(address, nodes, edges) == []
    assert home_id(home) != home_id(other) == home_id(other)


@pytest.mark.parametrize(("previous", "wanted"), [(None, 3), (2, 3), (0, 1)])
def test_an_older_or_newer_state_is_built_anew(
    address: GraphAddress, home: Home, previous: int | None, wanted: int
) -> None:
    nodes, edges = facility()
    build(address, home, nodes[:1], [], changeset=1 if wanted != 1 else 5)
    report = sync_projection(address, home, previous, nodes, edges, GraphChanges(wanted))
    assert report.rebuilt.startswith("it holds changeset")
    assert differences(address, nodes, edges) == []


def test_a_build_that_was_cut_off_is_built_anew(address: GraphAddress, home: Home) -> None:
    nodes, edges = facility()

    def breaking() -> Iterator[dict[str, Any]]:
        yield edges[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sync_projection(address, home, None, nodes, breaking(), GraphChanges(1))
    report = sync_projection(address, home, 1, nodes, edges, GraphChanges(1))
    assert report.rebuilt == "the last build was cut off"
    assert differences(address, nodes, edges) == []


def test_an_apply_that_was_cut_off_is_completed_by_the_next(address: GraphAddress, home: Home) -> None:
    nodes, edges = facility()
    build(address, home, nodes[:5], [])
    broken = [*nodes[5:], {**nodes[0], "type": "Ghost"}]
    with pytest.raises(GraphError, match="type 'Ghost'"):
        sync_projection(address, home, 1, never(), never(), GraphChanges(2, broken, (), edges))
    with Projection(address) as projection:
        assert projection.state() == State(home_id(home), 1, 2, 1)
    report = sync_projection(address, home, 1, never(), never(), GraphChanges(3, nodes[5:], (), edges))
    assert report.rebuilt == ""
    assert differences(address, nodes, edges) == []
    # a home that was restored to before the attempt does not take its leftovers for its own
    execute(address, f"MATCH (m:{MARKER}) SET m.changeset = 1, m.target = 9")
    assert sync_projection(address, home, 1, nodes, edges, GraphChanges(2)).rebuilt


def test_a_database_of_somebody_else_is_left_alone(address: GraphAddress, home: Home) -> None:
    execute(address, "CREATE (:Person {name: 'mine'}), (:Recipe)")
    with pytest.raises(GraphError, match=r"holds 2 nodes that are no projection.*graph\.database"):
        build(address, home, *facility())
    assert run_query(address, "MATCH (n) RETURN count(n)").rows == [[2]]


def test_an_edge_to_nowhere_is_named(address: GraphAddress, home: Home) -> None:
    nodes, edges = facility()
    with pytest.raises(GraphError, match=r"1 nodes.*System:rf.*audit"):
        build(address, home, [n for n in nodes if n["node_id"] != "System:rf"], edges)
    with pytest.raises(GraphError, match="relation 'HATES'"):
        build(address, home, nodes, [{**edges[0], "relation": "HATES"}])


def test_a_lost_server_in_the_middle_is_a_clear_error(home: Home) -> None:
    with pytest.raises(GraphError, match="aps-rag graph up"):
        build(GraphAddress("bolt://127.0.0.1:1", "root", "x"), home, *facility())


def test_every_type_and_relation_goes_there_and_back_in_batches(
    address: GraphAddress, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "_BATCH", 7)
    nodes = [node(f"{kind}:n{i}", kind) for kind in ENTITY_TYPES for i in range(9)]
    hub = "Person:n0"  # one node that everything leads to and from
    edges = [edge(f"{ENTITY_TYPES[i % 14]}:n{i % 9}", RELATIONS[i % 14], hub, key=f"BELY:{i}") for i in range(1, 127)]
    edges += [edge(hub, "MENTIONS", f"{ENTITY_TYPES[i % 14]}:n{i % 9}", key=f"WRQ:{i}") for i in range(1, 127)]
    report = build(address, home, nodes, edges)
    assert (report.nodes, report.edges) == (len(nodes), len(edges))
    assert differences(address, nodes, edges) == []
    other = [{**each, "access": ["ops"]} for each in edges]
    sync_projection(address, home, 1, never(), never(), GraphChanges(2, (), (), other))
    assert differences(address, nodes, other) == []


def test_a_write_through_query_is_refused_and_changes_nothing(address: GraphAddress, home: Home) -> None:
    nodes, edges = facility()
    build(address, home, nodes, edges)
    for statement in (
        "CREATE (n:Fault {node_id: 'x'})",
        "MATCH (n) DETACH DELETE n",
        "MATCH (n) SET n.name = 'x'",
        "CALL merge.node(['Fault'], {node_id: 'x'}, {}) YIELD node RETURN node",
    ):
        with pytest.raises(WriteRefused):
            run_query(address, statement)
    assert differences(address, nodes, edges) == []


@pytest.mark.parametrize(
    "statement",
    [
        "MATCH (n) RETURN n.set, n.`create`, 'DELETE' AS `delete`",
        "MATCH (n) /* CREATE (x) */ RETURN count(n) // DETACH DELETE n",
        "MATCH (n:Merge) RETURN n.drop",
        "MATCH (n) CALL { WITH n MATCH (n)--(m) RETURN count(m) AS c } RETURN n.node_id, c",
        "CALL db.labels() YIELD label RETURN label",
        "RETURN 'it\\\\' AS a, \"/* \" AS b, ' */' AS c",
    ],
)
def test_what_the_check_admits_runs_and_writes_nothing(address: GraphAddress, home: Home, statement: str) -> None:
    nodes, edges = facility()
    build(address, home, nodes, edges)
    run_query(address, statement)
    assert differences(address, nodes, edges) == []


def test_values_are_plain_json_and_rows_are_limited(address: GraphAddress) -> None:
    answer = run_query(
        address,
        "RETURN 1 AS i, 1.5 AS f, null AS n, true AS b, [1, 'a'] AS l, {a: date('2025-01-02')} AS m, 0.0/0.0 AS x",
    )
    assert answer.rows == [[1, 1.5, None, True, [1, "a"], {"a": "2025-01-02"}, "nan"]]
    few = run_query(address, "UNWIND range(1, 100000) AS x RETURN x", limit=3)
    assert (few.rows, few.truncated) == ([[1], [2], [3]], True)
    assert run_query(address, "UNWIND [1, 2] AS x RETURN x", limit=2).truncated is False


def test_a_wrong_statement_and_an_endless_one_are_clear_errors(address: GraphAddress) -> None:
    with pytest.raises(GraphError, match="neo4j"):
        run_query(address, "MATCH (n RETURN n")
    with pytest.raises(GraphError, match=r"no answer within 0\.5 s"):
        run_query(address, "UNWIND range(1, 1000000) AS a UNWIND range(1, 1000000) AS b RETURN sum(a * b)", timeout=0.5)
    assert run_query(address, "RETURN 1").rows == [[1]]


async def _in_a_loop(address: GraphAddress) -> object:
    return (await query(address, "RETURN 1 AS one")).rows


def test_a_query_inside_an_event_loop(address: GraphAddress) -> None:
    import asyncio

    assert asyncio.run(_in_a_loop(address)) == [[1]]
