"""What a report of the benchmark tells of the steps that were done, and where it says that this project loses."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET

from benchmarks import charts, comparison, ledger, losses, machine, measuring, pipeline, report, run, side_by_side
from benchmarks.ledger import Ledger

MODEL = "test:hash-32"


def _figures(wall: float, **result: object) -> dict[str, object]:
    done = measuring.Measured(wall, wall / 2, 500.0, 600.0, dict(result))
    return {**done.to_dict(), "disk_mib": 10.0, "files": 7}


def test_the_report_sets_systems_side_by_side(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    ledger = Ledger(tmp_path / "run")
    ledger.step("machine", machine.describe)
    compared = comparison.Comparison(ledger, "demo-60", MODEL, {"haiku-rag": "no Python 3.12\nmore"})
    for system, factor, work_s in (
        (comparison.STAGES, 1, 8.0),
        (comparison.COMMAND, 2, None),
        (comparison.LLAMA, 3, 4.0),
    ):
        seconds = {} if work_s is None else {"seconds": {"work": work_s}}
        for step in comparison.SYNCS:
            made = _figures(10.0 * factor, chunks=77, **seconds)
            ledger.step(compared.step(system, step), lambda made=made: made)
    for system, taken in ((comparison.STAGES, 0.015), (comparison.LLAMA, 0.02)):
        asked = {"first_s": 1.0, "seconds": [0.01, taken, 0.03]}
        ledger.step(compared.step(system, "search"), lambda asked=asked: _figures(1.0, hybrid=asked, dense=asked))
    right = {kind: [19, 20] for kind in ("new", "old", "deleted", "twins")}
    for system, edited in ((comparison.STAGES, 20), (comparison.LLAMA, 19)):
        made = _figures(1.0, hybrid=right | {"new": [edited, 20]})
        for step in ("edit", "delete"):
            ledger.step(compared.step(system, f"probe-{step}"), lambda made=made: made)
    text = report.write(ledger, [], [compared], "small").read_text()
    assert "| cold build, wall s | cold build, work s | no-op, wall s | no-op, work s |" in text
    assert "| this project, stages alone | 10.0 | 8.0 | 10.0 | 8.0 |" in text
    assert "| this project, `aps-rag sync` | 20.0 | – | 20.0 | – |" in text
    assert "| LlamaIndex IngestionPipeline | 30.0 | 4.0 | 30.0 | 4.0 |" in text
    assert "| orchestration | 10.0 | – | 10.0 | – |" in text
    assert "| LlamaIndex IngestionPipeline | 1.50 | 0.50 | 1.50 | 0.50 |" in text
    assert "| LlamaIndex IngestionPipeline | 15 | 500 / 600 | 10 / 7 | 77 | 20.0 / 30.0 | 20.0 / 30.0 |" in text
    assert "| LlamaIndex IngestionPipeline, hybrid | 19 of 20 | 19 of 20 |" in text
    assert "- haiku.rag: stopped, no Python 3.12" in text
    told = [line for line in text.splitlines() if line.startswith("- LlamaIndex")]
    assert len(told) == 2 * len(comparison.SYNCS) + 4
    pipeline = "- LlamaIndex IngestionPipeline"
    assert f"{pipeline}, no-op, wall: less than twice as fast, 20.0 s against 30.0 s (factor 1.50)." in told
    assert f"{pipeline}, no-op, work: this project loses, 8.0 s against 4.0 s (factor 0.50)." in told
    assert f"{pipeline}, hybrid search, p50: less than twice as fast, 15.0 ms against 20.0 ms (factor 1.33)." in told
    assert (tmp_path / "results" / "small.svg").exists()


def _compared(ledger: Ledger, **theirs: object) -> comparison.Comparison:
    """This project at 10 s, 100 MiB and 20 of 20, and LlamaIndex, of whose figures some are given."""
    compared = comparison.Comparison(ledger, "demo-60", MODEL)
    right = {kind: [20, 20] for kind in ("new", "old", "deleted", "twins")}
    for system, wall, changed in (
        (comparison.STAGES, 10.0, {}),
        (comparison.COMMAND, 10.0, {}),
        (comparison.LLAMA, 20.0, theirs),
    ):
        made = {**_figures(wall, hybrid=right, seconds={"work": wall}), **changed}
        for step in (*comparison.SYNCS, "probe-edit", "probe-delete"):
            ledger.step(compared.step(system, step), lambda made=made: made)
    return compared


def test_what_is_twice_as_fast_is_no_loss_and_what_takes_more_is(tmp_path):
    assert losses.loss_lines(_compared(Ledger(tmp_path / "even")))[2].startswith("- Nowhere:")
    fewer = {"process_mib": 499.0, "tree_mib": 600.0, "disk_mib": 9.0}
    lines = losses.loss_lines(_compared(Ledger(tmp_path / "more"), **fewer))
    assert [line.partition(", cold build, ")[2] for line in lines[2:-1]] == [
        "peak of a process: this project loses, 500 MiB against 499 MiB.",
        "store: this project loses, 10 MiB against 9 MiB.",
    ]
    compared = _compared(Ledger(tmp_path / "just"), wall_s=19.999)
    just = losses.loss_lines(compared)
    table = "\n".join(side_by_side.comparison_lines(compared))
    assert f"| LlamaIndex IngestionPipeline |{' 1.99 | 2.00 |' * len(comparison.SYNCS)}" in table
    assert all("wall: less than twice as fast" in line and "(factor 1.99)" in line for line in just[2:-1])
    assert len(just[2:-1]) == len(comparison.SYNCS)


def test_figures_of_an_earlier_sitting_are_marked(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    facility = pipeline.Facility(Ledger(tmp_path / "run"), 300, MODEL)
    facility.ledger.hold_to({"embedding model": MODEL, **machine.describe()})
    seconds = {"imports": 1.0, "work": 9.0}
    made = _figures(10.0, seconds=seconds, stages={})
    facility.ledger.step("300/stages/cold", lambda: made)
    text = report.write(facility.ledger, [facility], [], "small").read_text()
    assert "| cold build | 10.0 | 1.0 | 9.0 | 5.0 | 500 | 600 | – | – | – | 10 | 1 |" in text
    assert "resumed" not in text
    facilities = [facility, pipeline.Facility(facility.ledger, 3000, MODEL)]
    assert "### 3,000 records" not in report.write(facility.ledger, facilities, [], "small").read_text()
    again = pipeline.Facility(Ledger(tmp_path / "run"), 300, MODEL)
    again.ledger.step("300/stages/edit", lambda: {**made, "earlier_s": 30.0})
    again.ledger.step("300/command/cold", lambda: made)
    text = report.write(again.ledger, [again], [], "small").read_text()
    assert "**The run was resumed: " in text
    assert text.count(f"; 2 begun {again.ledger.sittings[1].begun[:10]} ") == 1
    assert "| cold build | 10.0 | 1.0 | 9.0 | 5.0 | 500 | 600 | 10.0 | 500 | 0.0 | 10 | 1, 2 |" in text
    assert "| 1 % edited | 40.0 | 1.0 | 39.0 | 5.0 | 500 | 600 | – | – | – | 10 | 2 † |" in text


def test_a_report_is_written_again_from_what_was_done(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    ledger = Ledger(tmp_path / "runs" / "small")
    ledger.hold_to({report.MODEL: MODEL, **machine.describe(), "cpu": "another machine's"})
    found = {"p50_ms": 7.0, "p95_ms": 9.0, "n": 20}
    for size in (300, 3000):
        for step, wall in (("cold", 90.0), ("noop", 2.0), ("edit", 4.0), ("delete", 3.0)):
            counts = {"embeddings": {"chunks": 2 * size}}
            made = _figures(wall, seconds={"imports": 1.0, "work": wall - 1}, stages={}, counts=counts)
            ledger.step(f"{size}/stages/{step}", lambda made=made: made)
        ledger.step(f"{size}/model", lambda: {**_figures(1.0), "process_mib": 300.0, "tree_mib": 310.0})
        ledger.step(f"{size}/search", lambda: _figures(1.0, first_s=1.0, hybrid=found, dense=found))
    text = run.main(["--run", "small", "--report-only"]).read_text()
    assert "another machine's" in text
    assert f"`{MODEL}`" in text
    assert "| 3,000 | 6,000 | 89.0 | 1.00 | 3.0 (0.034) | 2.0 (0.022) | 7 / 9 | 200 / 290 | 10 | 1 |" in text
    drawing = (tmp_path / "results" / "small.svg").read_text()
    assert all(title in drawing for title in ("Work after imports", "Peak of one", "Disk of the home", "Search, warm"))


def test_the_drawing_is_xml_with_a_point_for_each_figure():
    made = charts.growth([("Time", "s", {"cold <b>": [(300, 2.0), (3000, 40.0)], "no-op": [(300, 0.1)]})])
    circles = [node for node in ET.fromstring(made).iter() if node.tag.endswith("circle")]
    assert len(circles) == 3
    ET.fromstring(charts.growth([]))


def test_a_report_that_is_written_meanwhile_makes_no_other_version(tmp_path, monkeypatch):
    def git(*arguments):
        author = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        subprocess.run(["git", *author, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(ledger, "REPOSITORY", tmp_path)
    report_file, code = tmp_path / "benchmarks" / "results" / "bench.md", tmp_path / "code.py"
    report_file.parent.mkdir(parents=True)
    report_file.write_text("first")
    code.write_text("one = 1\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "all")
    clean = ledger.commit()
    report_file.write_text("second")
    assert ledger.commit() == clean
    code.write_text("one = 2\n")
    assert ledger.commit() == f"{clean}-dirty"
