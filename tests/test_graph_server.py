"""The Bolt server of the wheel: on loopback only, found again, stopped, and never mistaken for another process."""

from __future__ import annotations

import ipaddress
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from aps_rag_pipeline.settings import Graph, Settings
from aps_rag_pipeline.stores import bolt_server
from aps_rag_pipeline.stores.bolt import GraphAddress, GraphError, connect
from aps_rag_pipeline.stores.bolt_server import address_for, down, listening, running, up, wipe
from aps_rag_pipeline.stores.cypher import run_query
from aps_rag_pipeline.stores.home import Home

pytest.importorskip("arcadedb_embedded", reason="the wheel of the Bolt server is not installed")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / 'a "home", 100 % ours')
    yield home
    down(home)


def settings(**graph: object) -> Settings:
    return Settings(graph=Graph(**graph))


def pid_of(home: Home) -> int:
    return int(json.loads((home.graph / "server.json").read_text())["pid"])


def everything_under(home: Home) -> str:
    files = (path for path in home.root.rglob("*") if path.is_file())
    return "\n".join(path.read_bytes().decode("latin-1") for path in files)


def write(address: GraphAddress, statement: str) -> None:
    with connect(address) as driver:
        driver.execute_query(statement, database_=address.database)


def test_a_life_of_a_server(home: Home) -> None:
    assert running(home) is None
    assert down(home) is False
    address = up(home)
    assert up(home) == running(home) == address_for(settings(), home) == address
    pid = pid_of(home)

    # by the kernel's own account: every port is on loopback, and Bolt is one of them
    ports = listening(pid)
    assert len(ports) == 2
    assert all(ipaddress.ip_address(ip).is_loopback for ip, _ in ports)
    assert address.uri == f"bolt://127.0.0.1:{address.uri.rpartition(':')[2]}"
    assert int(address.uri.rpartition(":")[2]) in {port for _, port in ports}

    # the password is the owner's alone, and not on the command line
    for name in ("password", "java.args", "server.json", "server.log"):
        assert stat.S_IMODE((home.graph / name).stat().st_mode) == 0o600
    assert len(address.password) >= 24
    assert address.password not in " ".join(psutil.Process(pid).cmdline())
    assert address.password not in repr(address)
    with pytest.raises(GraphError, match="refuses user 'root'"):
        run_query(GraphAddress(address.uri, "root", "wrong password", "neo4j"), "RETURN 1")
    assert os.getsid(pid) != os.getsid(0)

    write(address, "CREATE (:Kept {n: 1})")
    process = psutil.Process(pid)
    assert down(home) is True
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert running(home) is None
    assert down(home) is False
    with pytest.raises(GraphError, match="aps-rag graph up"):
        run_query(address, "RETURN 1")


def test_a_killed_server_finds_its_data_again_and_a_wipe_leaves_no_byte_of_it(home: Home) -> None:
    assert wipe(home) is None
    address = up(home)
    write(address, "CREATE INDEX kept IF NOT EXISTS FOR (k:Kept) ON (k.name)")
    write(address, "CREATE (:Kept {name: 'a leaked password'}), (:Kept {name: 'harmless'})")
    write(address, "MATCH (k:Kept {name: 'a leaked password'}) DELETE k")
    process = psutil.Process(pid_of(home))
    process.kill()
    process.wait(10)
    assert running(home) is None

    again = up(home)
    assert again.password == address.password
    assert run_query(again, "MATCH (k:Kept) RETURN k.name").rows == [["harmless"]]
    assert pid_of(home) != process.pid

    assert "a leaked password" in everything_under(home)  # deleting it did not suffice
    afresh = wipe(home)
    assert afresh is not None
    assert afresh == running(home)
    assert "a leaked password" not in everything_under(home)
    assert run_query(afresh, "MATCH (n) RETURN count(n)").rows == [[0]]


def test_a_pid_of_another_process_is_left_alone(home: Home) -> None:
    home.graph.mkdir(parents=True)
    (home.graph / "password").write_text("x")
    mine = psutil.Process()
    for content in (
        json.dumps({"pid": mine.pid, "started": mine.create_time() - 60, "port": 1}),
        json.dumps({"pid": 2**22 + 1, "started": 0, "port": 1}),
        json.dumps(["pid"]),
        '{"pid": 1',
        "",
    ):
        (home.graph / "server.json").write_text(content)
        assert running(home) is None
        assert down(home) is False
        assert not (home.graph / "server.json").exists()
    assert mine.is_running()


def test_what_is_configured_goes_before_what_runs(home: Home) -> None:
    assert address_for(settings(), home) is None
    found = address_for(
        settings(uri="bolt://graph.example:7687", user="neo4j", password="p", database="facility"), home
    )
    assert found == GraphAddress("bolt://graph.example:7687", "neo4j", "p", "facility")


def test_a_server_that_cannot_start_says_why(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bolt_server, "_HEAP", "1k")
    with pytest.raises(GraphError, match=r"ended at once.*server\.log(.|\n)*[Hh]eap"):
        up(home)
    assert running(home) is None
    assert not (home.graph / "server.json").exists()


def test_without_the_wheel_the_remedy_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bolt_server, "_WHEEL", "no_such_wheel")
    with pytest.raises(GraphError, match=r"pip install 'aps-rag-pipeline\[local\]'"):
        up(home)


@pytest.mark.parametrize("uri", ["bolt://127.0.0.1:1", "http://127.0.0.1:1", "nonsense", "bolt://"])
def test_an_address_without_a_server_is_a_clear_error(uri: str) -> None:
    with pytest.raises(GraphError, match=r"graph\.uri"):
        run_query(GraphAddress(uri, "u", "p"), "RETURN 1", timeout=10)
    with pytest.raises(GraphError, match=r"graph\.uri"), connect(GraphAddress(uri, "u", "p")):
        pass
