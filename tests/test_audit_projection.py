"""The audit of the projection on a real Bolt server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aps_rag_pipeline.stores.bolt import GraphAddress, connect
from aps_rag_pipeline.stores.bolt_server import down, up
from aps_rag_pipeline.sync.projection import project
from tests.damaged_home import Bench, said
from tests.small_facility import Facility

pytest.importorskip("arcadedb_embedded", reason="the wheel of the Bolt server is not installed")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    facility = Facility(tmp_path)
    facility.log = {"shift-1": {n: f"Entry {n}: the kicker HVPS tripped" for n in range(1, 4)}}
    facility.requests = {"20417": {"title": "Replace thyratron", "description": "It is at end of life"}}
    facility.write().sync()
    yield Bench(facility)
    down(facility.home)


def execute(address: GraphAddress, statement: str) -> None:
    with connect(address) as driver:
        driver.execute_query(statement, database_=address.database)


def test_the_projection_is_compared_both_ways_and_mended(bench: Bench) -> None:
    assert bench.look().notices == ["no Bolt server is configured or running: the projection was not looked at"]
    address = up(bench.facility.home)
    assert {each[:2] for each in said(bench.look())} == {("projection_behind", "projection")}
    with bench.facility.workspace() as workspace:
        project(workspace)
    assert said(bench.look()) == set()

    execute(address, "MATCH (n:LogEntry {node_id: 'BELY:1'}) DETACH DELETE n")
    execute(address, "MATCH (n:LogEntry {node_id: 'BELY:2'}) SET n.access = ['ops']")
    execute(address, "CREATE (:System {node_id: 'System:nowhere', name: 'nowhere'})")
    found = said(bench.look())
    assert {
        ("missing_in_projection", "projection", "BELY:1"),
        ("different_in_projection", "projection", "BELY:2"),
        ("surplus_in_projection", "projection", "System:nowhere"),
    } <= found
    assert all(kind == "missing_in_projection" for kind, _, what in found if not what.startswith(("BELY", "System")))
    _, done, left = bench.repair()
    assert done == ["built the projection anew"]
    assert said(left) == set()

    bench.tables.table("passages").delete("key = 'BELY:3'")  # a repair carries its release to the server too
    _, _, left = bench.repair()
    assert said(left) == set()
