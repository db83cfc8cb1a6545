"""The benchmark itself: that it changes what it says, counts what is right, goes on where it stopped, and tells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from aps_rag_pipeline.demo.write import write as write_demo
from aps_rag_pipeline.stores.home import Home
from benchmarks import (
    comparison,
    documents,
    editing,
    large_home,
    machine,
    measuring,
    pipeline,
    report,
    run,
    search_latency,
    work,
)
from benchmarks.ledger import REPOSITORY, Ledger, OtherFactsError
from benchmarks.peers import environments
from query import retrieval
from query.filters import Filters

PEERS = Path(comparison.__file__).parent / "peers"
MODEL = "test:hash-32"


@pytest.fixture(scope="module")
def feeds(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("bench") / "demo"
    write_demo(out, records=300)
    return out / "feeds"


@pytest.fixture(autouse=True)
def no_model_from_outside(monkeypatch):
    monkeypatch.delenv(run.EMBEDDING, raising=False)


@pytest.fixture
def texts() -> list[str]:
    return [
        f"# Note {number}\n\nPump {number} of loop {number % 7} ran at {number} Hz after repair."
        for number in range(60)
    ]


@pytest.fixture
def peers(monkeypatch):
    """The workers' modules, which find each other by their folder."""
    monkeypatch.syspath_prepend(str(PEERS))
    import peer_work
    import with_this

    return peer_work, with_this


def all_text(feeds: Path, source: str) -> str:
    if source == "downtime":
        from openpyxl import load_workbook

        cells = (
            str(cell)
            for path in sorted((feeds / source).glob("*.xlsx"))
            for row in load_workbook(path).active.iter_rows(values_only=True)
            for cell in row
        )
        return "\n".join(cells)
    files = sorted(path for path in (feeds / source).rglob("*") if path.is_file() and ".git" not in path.parts)
    return "\n".join(path.read_text(errors="replace") for path in files)


def test_every_source_is_edited_and_deletions_take_the_records_out(feeds):
    before = {source: list(one.records()) for source, one in editing.formats(feeds).items()}
    assert all(before.values())
    edits = editing.plan(feeds, 0.05, 0.5, lambda number: f"Bench note qz{number:05d}.")
    for source, one in editing.formats(feeds).items():
        assert one.change(edits[source]) == len(edits[source]) >= 1
        text = all_text(feeds, source)
        assert all(mark in text for mark in edits[source].values())
        assert list(one.records()) == before[source]
    gone = editing.plan(feeds, 0.05, 0.0, None)
    for source, one in editing.formats(feeds).items():
        assert one.change(gone[source]) == len(gone[source])
        assert set(before[source]) - set(one.records()) == set(gone[source])
        assert one.change(gone[source]) == 0, "a resumed step must not delete more"


def test_changes_are_spread_evenly():
    assert editing.spread(list(range(300)), 0.01, 0.5) == [50, 150, 250]
    assert editing.spread([7], 0.01, 0.5) == [7]


def test_a_set_of_documents_tells_its_states_apart(tmp_path, texts):
    documents.make(tmp_path, texts * 10)
    cold, edit, delete = (documents.read(tmp_path, state) for state in ("cold", "edit", "delete"))
    probes = json.loads((tmp_path / "probes.json").read_text())["delete"]
    edited = [name for name in cold if edit[name] != cold[name]]
    assert len(edited) == 6
    assert sorted(set(edit) - set(delete)) == sorted(name for name, _ in probes["deleted"])
    for name, word in probes["new"]:
        assert word in delete[name]
        assert word not in cold[name]
    for name, word in probes["twins"]:
        assert word in delete[name]
        assert delete[name] in [cold[other] for other, _ in probes["deleted"]]


def test_laying_documents_leaves_right_files_alone(tmp_path):
    documents.lay(tmp_path, {"a": "one", "b": "two"})
    stamp = (tmp_path / "a.md").stat().st_mtime_ns
    documents.lay(tmp_path, {"a": "one", "c": "three"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.md", "c.md"]
    assert (tmp_path / "a.md").stat().st_mtime_ns == stamp


def test_this_project_gets_edits_and_deletions_right(tmp_path, texts, peers, monkeypatch):
    peer_work, with_this = peers
    monkeypatch.setenv("APS_RAG_MODELS__EMBEDDING", MODEL)
    documents.make(tmp_path / "set", texts)
    laid, store = tmp_path / "documents", tmp_path / "store"
    store.mkdir()
    (store / "facility.yaml").write_text(comparison._FACILITY.format(folder=laid))
    counted = []
    for state in ("cold", "edit", "delete"):
        documents.lay(laid, documents.read(tmp_path / "set", state))
        syncing = with_this.ThisProject(store)
        counted.append(syncing.sync(laid))
        asking = with_this.ThisProject(store)
        probes = documents.read(tmp_path / "set", "probes")
        if state in probes:
            found = peer_work._look(asking, "hybrid", probes[state])
            assert all(right == asked for right, asked in found.values()), found
            assert found["new"][1] == 1
        asking.close()
    assert [found["added"] for found in counted] == [61, 0, 0]
    assert [found["changed"] for found in counted] == [0, 1, 0]
    assert [found["removed"] for found in counted] == [0, 0, 1]


class Forgetful:
    """Keeps the first text of every document for ever."""

    modes = ("hybrid",)

    def __init__(self, texts: documents.Texts) -> None:
        self.texts = texts

    def search(self, text: str, mode: str, depth: int) -> list[tuple[str, str]]:
        return [(name, told) for name, told in self.texts.items() if text in told]


def test_a_system_that_forgets_nothing_is_found_out(tmp_path, texts, peers):
    peer_work, _ = peers
    documents.make(tmp_path, texts)
    probes = documents.read(tmp_path, "probes")
    found = peer_work._look(Forgetful(documents.read(tmp_path, "cold")), "hybrid", probes["delete"])
    assert found == {"new": [0, 1], "old": [0, 1], "deleted": [0, 1], "twins": [1, 1]}


def test_a_measured_process_gives_its_figures_and_its_error(tmp_path):
    out, log = tmp_path / "out.json", tmp_path / "log"
    code = f"import pathlib; data = bytearray(60_000_000); pathlib.Path({str(out)!r}).write_text('{{\"n\": 3}}')"
    done = measuring.measure([sys.executable, "-c", code], log, out=out)
    assert done.result == {"n": 3}
    assert done.process_mib > 57
    assert done.cpu_s > 0
    with pytest.raises(measuring.StepError, match="no such thing"):
        measuring.measure([sys.executable, "-c", "raise SystemExit('no such thing')"], log)


def test_a_resumed_process_counts_what_went_before(tmp_path):
    heartbeat = tmp_path / "seconds"
    heartbeat.write_text("12.5")
    done = measuring.measure([sys.executable, "-c", ""], tmp_path / "log", heartbeat=heartbeat)
    assert done.earlier_s == 12.5
    assert not heartbeat.exists()


def test_a_killed_benchmark_leaves_no_process_behind(tmp_path):
    os.mkfifo(tmp_path / "alive")
    child = f"import time; out = open({str(tmp_path / 'alive')!r}, 'w'); print('begun', file=out, flush=True); "
    child += "time.sleep(20); print('survived', file=out)"
    parent = "import sys; from pathlib import Path; from benchmarks.measuring import measure; "
    parent += f"measure([sys.executable, '-c', {child!r}], Path({str(tmp_path / 'log')!r}))"
    with (
        subprocess.Popen([sys.executable, "-c", parent], cwd=REPOSITORY) as running,
        (tmp_path / "alive").open() as said,
    ):
        assert said.readline() == "begun\n"
        running.kill()
        assert said.read() == "", "it ended before it could say more"


def test_what_a_command_says_on_its_output_is_in_the_error(tmp_path):
    command = [sys.executable, "-c", "print('held by another'); raise SystemExit(75)"]
    with pytest.raises(measuring.StepError, match="ended with 75: held by another"):
        measuring.measure(command, tmp_path / "log", result_from_stdout=True)


def test_a_step_that_goes_on_where_it_was_counts_its_earlier_attempts(tmp_path, monkeypatch):
    counted = {}

    def note(command, log, *, heartbeat=None, **_):
        counted[log.stem] = heartbeat is not None
        return measuring.Measured(1.0, 1.0, 1.0, 1.0, {})

    monkeypatch.setattr(pipeline, "measure", note)
    monkeypatch.setattr(pipeline, "COPY_ABOVE", 400)
    for records in (300, 500):
        facility = pipeline.Facility(Ledger(tmp_path), records, MODEL)
        facility.home("stages").mkdir(parents=True)
        facility._step("stages/cold", "stages", cold=True)
        assert facility.home("stages").exists() == (records == 500), "a short build starts over"
        for step in ("noop", "edit"):
            facility._step(f"command/{step}", "command")
    assert counted == {
        "300-stages-cold": False, "300-command-noop": False, "300-command-edit": True,
        "500-stages-cold": True, "500-command-noop": False, "500-command-edit": True,
    }  # fmt: skip


def test_hard_links_take_their_place_once(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 2**20)
    alone = measuring.disk_mib(tmp_path)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert measuring.disk_mib(tmp_path) == alone
    assert alone[1] == 1


def test_percentiles_are_milliseconds():
    found = measuring.percentiles([number / 1000 for number in range(101)])
    assert (found["p50_ms"], found["p95_ms"], found["n"]) == (50, 95, 101)
    assert measuring.percentiles([]) == {}


def test_a_step_is_done_once(tmp_path):
    calls = []
    for _ in range(2):
        found = Ledger(tmp_path).step("a/b", lambda: calls.append(1) or {"n": len(calls)})
    assert found["n"] == 1
    assert len(Ledger(tmp_path).loads) == 1, "only a process that does something notes the load"
    with pytest.raises(ZeroDivisionError):
        Ledger(tmp_path).step("broken", lambda: {"n": 1 / 0})
    assert Ledger(tmp_path).result("broken") == {}


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"embedding model": MODEL}, "embedding model: gt-a, now test:hash-32"),
        ({"cpu": "faster"}, "cpu: slow, now faster"),
        ({"memory_gib": 64.0}, "memory_gib: 23.5, now 64.0"),
        ({"packages": {"lancedb": "0.41.0"}}, "packages lancedb: 0.40.0, now 0.41.0"),
    ],
)
def test_a_run_holds_figures_of_one_model_machine_and_stores(tmp_path, other, told):
    facts = {"embedding model": "gt-a", "cpu": "slow", "memory_gib": 23.5, "packages": {"lancedb": "0.40.0"}}
    for _ in range(2):
        Ledger(tmp_path / "bench").hold_to(facts)
    with pytest.raises(OtherFactsError) as caught:
        Ledger(tmp_path / "bench").hold_to(facts | other)
    assert f"({told})" in str(caught.value)
    assert "--fresh" in str(caught.value)
    assert "--run NAME" in str(caught.value)


def test_another_model_is_refused_before_anything_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(run.Facility, "run", lambda facility: None)
    path = run.main(["--sizes", "300", "--model", MODEL])
    text = path.read_text()
    with pytest.raises(SystemExit, match=f"embedding model: {MODEL}, now {run.DEFAULT_MODEL}"):
        run.main(["--sizes", "300"])
    assert path.read_text() == text
    assert run.DEFAULT_MODEL in run.main(["--sizes", "300", "--fresh"]).read_text()
    assert MODEL in run.main(["--sizes", "300", "--model", MODEL, "--run", "other"]).read_text()


def test_environments_say_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    with pytest.raises(environments.UnavailableError, match=r"Python 9\.9 or newer"):
        environments.Environment("none", (), oldest=(9, 9)).make()
    monkeypatch.setattr(environments, "NEEDED", 2**60)
    with pytest.raises(environments.UnavailableError, match="free"):
        environments.Environment("none", ()).make()


def test_a_busy_machine_is_told():
    found = machine.describe()
    assert found["cores"] >= 1
    assert not any("Warning" in line for line in machine.lines(found, [0.1]))
    assert any("not idle (load 3.00" in line for line in machine.lines(found, [0.1, 3.0]))


class Meaning:
    """A dense channel that finds half of the nearest, unless it is asked for as many as a search asks it for."""

    def near(self, vectors: np.ndarray, filters: Filters, limit: int) -> list[list[SimpleNamespace]]:
        near = range(500) if limit == retrieval.AHEAD else range(50)
        return [[SimpleNamespace(chunk_id=str(number)) for number in near][:limit] for _ in vectors]


def test_recall_is_that_of_the_product_s_own_searches():
    exact = search_latency.Exact.__new__(search_latency.Exact)
    exact.ids = np.array([str(number) for number in range(500)])
    exact.vectors = np.array([[1 - number / 500] for number in range(500)], dtype=np.float32)
    exact.labels, exact.created = [("public",)] * 500, [None] * 500
    corpus = SimpleNamespace(_snapshot=SimpleNamespace(meaning=Meaning()))
    found = exact.recall(corpus, np.ones((2, 1), dtype=np.float32), Filters())
    assert found == {"mean": 1.0, "least": 1.0, "rows": 500}
    nobody = Filters(groups=frozenset({"none"}))
    assert exact.recall(corpus, np.ones((2, 1), dtype=np.float32), nobody) == {"rows": 0}


def test_a_large_home_takes_no_other_s_place(tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "mine").write_text("kept")
    with pytest.raises(FileExistsError, match="remove it, or name another place"):
        large_home.write(Home(tmp_path / "base"), tmp_path / "large", 100)
    assert [path.name for path in tmp_path.rglob("*")] == ["large", "mine"]


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize("done", range(4))
def test_search_is_measured_after_making_what_is_missing(tmp_path, done):
    made = ["demo/facility.yaml", "demo/.stamp-synced", "large/made.json"]
    for name in ("venv/.installed", *made[:done]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    places = [f"VENV={tmp_path}/venv", f"DEMO={tmp_path}/demo", f"LARGE={tmp_path}/large"]
    command = ["make", "-n", "bench-search", *places]
    told = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    steps = ["demo write", "sync -c", "benchmarks.large_home", "benchmarks.search_latency"]
    assert sorted((step for step in steps if step in told), key=told.index) == steps[done:]


@pytest.mark.slow
def test_one_command_measures_a_facility_and_tells(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    text = run.main(["--sizes", "300", "--model", MODEL, "--run", "small"]).read_text()
    assert "Right: 9 of 9 edits and 9 of 9 deletions were seen; 9 of 9 edited records found" in text
    assert "| cold build |" in text
    assert "| embeddings |" in text
    steps = tmp_path / "runs" / "small" / "steps" / "300"
    assert json.loads((steps / "stages" / "noop.json").read_text())["result"]["embedded"] == 0
    stamp = (steps / "stages" / "cold.json").stat().st_mtime_ns
    assert run.main(["--sizes", "300", "--model", MODEL, "--run", "small"]).read_text() == text
    assert (steps / "stages" / "cold.json").stat().st_mtime_ns == stamp
    facility, large = tmp_path / "runs" / "small" / "demo-300", tmp_path / "large"
    large_home.write(Home(facility / "home-stages"), large, 1500)
    found = search_latency.measure(large, search_latency.questions(facility / "truth.json", 5))
    assert found["chunks"] == 1500
    assert found["made"].keys() >= {"write_s"}
    assert found["recall_at_100"]["none"] == {"mean": 1.0, "least": 1.0, "rows": 1500}
    assert not (tmp_path / "large.part").exists()


def test_sizes_to_compare_must_be_measured():
    with pytest.raises(SystemExit):
        run.main(["--sizes", "300", "--peers", "--peer-sizes", "3000"])


def test_the_environment_names_the_embedder_and_peers_need_a_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(run.Facility, "run", lambda facility: None)
    monkeypatch.setenv(run.EMBEDDING, MODEL)
    text = run.main(["--sizes", "300"]).read_text()
    assert f"- embedding model: `{MODEL}`" in text
    assert "The embedder is deterministic" in text
    text = run.main(["--sizes", "300", "--embedding", run.DEFAULT_MODEL, "--run", "other"]).read_text()
    assert f"- embedding model: `{run.DEFAULT_MODEL}`" in text
    assert "deterministic" not in text
    with pytest.raises(SystemExit):
        run.main(["--sizes", "3000", "--peers"])
    assert f"the others run a model, and {MODEL} is none" in capsys.readouterr().err


def test_a_wrapped_function_is_timed_wherever_its_module_calls_it():
    module = SimpleNamespace(double=lambda number: 2 * number)
    clock = work.Clock()
    clock.wrap(module, "double", "doubling")
    assert module.double(4) == 8
    assert clock.seconds.keys() == {"doubling"}
