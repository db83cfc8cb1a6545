"""From the steps of a run to `benchmarks/results/<run>.md` and the drawing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import charts, machine, sittings
from benchmarks.comparison import Comparison
from benchmarks.ledger import Ledger
from benchmarks.pipeline import FORMS, Facility
from benchmarks.side_by_side import comparison_lines
from benchmarks.tables import number, share, table

RESULTS = Path(__file__).parent / "results"
_SYNCS = (
    ("cold", "cold build"),
    ("noop", "no-op"),
    ("edit", "1 % edited"),
    ("delete", "1 % deleted"),
    ("noop-again", "no-op again"),
)
_READING = """\
Every row is a process of its own. *Wall* is from its start to its end, *imports* the modules it needs, *work* the rest
inside it; *CPU* is user and system time of it and of the children it waited for. *Process* is the largest resident set
of any one process (`ru_maxrss` of the process and its waited-for children), *tree* the largest sum over the process and
all below it, sampled twice a second (shared pages count for each). *Disk* is what the home or store takes afterwards,
hard links once, the model's own files left out. Edits and deletions are spread evenly over all source files, so that
every file of every feed has to be read again: a real day touches fewer."""


def write(
    ledger: Ledger, model: str, facilities: Sequence[Facility], comparisons: Sequence[Comparison], name: str
) -> Path:
    """Write the report of what is there so far; gives its path."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    drawing = RESULTS / f"{name}.svg"
    drawing.write_text(_drawing(facilities))
    made = [
        f"# Benchmark `{name}`",
        "",
        *machine.lines(ledger.result("machine"), ledger.loads),
        *sittings.lines(ledger.sittings),
        *_versions(ledger, model),
        "",
        _READING,
    ]
    made += ["", "## By size: nine sources, this project", ""]
    for facility in facilities:
        made += _sizes(facility)
    made += [
        f"![Growth over the number of records]({drawing.name})",
        "",
        *_goals(facilities),
        *_stage_table(facilities),
    ]
    for comparison in comparisons:
        made += comparison_lines(comparison)
    path = RESULTS / f"{name}.md"
    path.write_text("\n".join(made).rstrip() + "\n")
    return path


def _versions(ledger: Ledger, model: str) -> list[str]:
    commits = [commit for commit in ledger.commits() if commit]
    told = [f"- embedding model: `{model}`; version of the project: {', '.join(commits) or 'unknown'}"]
    if len(commits) > 1:
        told.append("- **Warning: steps of this run were done with different versions; run it with `--fresh`.**")
    return told


def _sizes(facility: Facility) -> list[str]:
    rows = []
    for step, title in _SYNCS:
        alone, whole = (facility.result(f"{form}/{step}") for form in FORMS)
        if not alone:
            continue
        seconds = alone["result"]["seconds"]
        wall = alone["wall_s"] + alone["earlier_s"]
        command = whole["wall_s"] + whole["earlier_s"] if "wall_s" in whole else None
        rows.append(
            [
                title,
                number(wall),
                number(seconds["imports"]),
                number(seconds["work"] + alone["earlier_s"]),
                number(alone["cpu_s"]),
                number(alone["process_mib"], 0),
                number(alone["tree_mib"], 0),
                number(command) if command is not None else "copied" if whole else "–",
                number(None if command is None else whole["process_mib"], 0),
                number(None if command is None else command - wall),
                number(alone["disk_mib"], 0),
                sittings.of(alone, whole),
            ]
        )
    written = facility.result("write").get("result", {}).get("records", facility.records)
    head = ["", "wall s", "imports s", "work s", "CPU s", "process MiB", "tree MiB", "`aps-rag sync` s", "its MiB",
            "orchestration s", "disk MiB", "sitting"]  # fmt: skip
    return [f"### {written:,} records", "", *table(head, rows), *_search(facility), *_rightness(facility), ""]


def _search(facility: Facility) -> list[str]:
    step = facility.result("search")
    found = step.get("result", {})
    told = [
        f"{mode} p50 {found[mode]['p50_ms']:.0f} ms, p95 {found[mode]['p95_ms']:.0f} ms"
        for mode in ("hybrid", "dense")
        if found.get(mode)
    ]
    if not told:
        return []
    asked = found["hybrid"]["n"]
    return [
        f"Search, warm, {asked} questions, one variant: {'; '.join(told)}; first answer {found['first_s']:.1f} s "
        f"(sitting {sittings.of(step)})."
    ]


def _rightness(facility: Facility) -> list[str]:
    found = facility.result("marks-delete").get("result", {})
    if not found:
        return []
    counted = [
        f"{facility.result(f'stages/{step}')['result']['applied'].get(name, 0)} of {len(facility.planned(step))} {told}"
        for step, name, told in (("edit", "changed", "edits"), ("delete", "removed", "deletions"))
    ]
    return [
        f"Right: {' and '.join(counted)} were seen; {found['edited_found']} of {found['edited']} edited records found "
        f"by their new words, {found['deleted_gone']} of {found['deleted']} deleted ones gone."
    ]


def _goals(facilities: Sequence[Facility]) -> list[str]:
    rows = []
    for facility in facilities:
        cold, bare, model = (facility.result(name) for name in ("stages/cold", "bare", "model"))
        if not cold or not bare or not model:
            continue
        work = cold["result"]["seconds"]["work"] + cold["earlier_s"]
        pictures = cold["result"]["stages"].get("ocr", 0.0) + cold["result"]["stages"].get("export of the model", 0.0)
        rate = bare["result"]["chunks"] / bare["result"]["seconds"]["encode"]
        texts = bare["result"]["distinct"]
        ours, rest = texts / work, texts / max(work - pictures, 1e-9)
        changes = [_work(facility, name) for name in ("edit", "delete", "noop")]
        rows.append(
            [
                f"{facility.records:,}",
                number(texts, 0),
                number(rate),
                number(ours),
                f"{ours / rate:.2f} ({rest / rate:.2f})",
                *(f"{number(change)} ({share(change, work, 3)})" for change in changes[:2]),
                number(changes[2], 2),
                number(cold["process_mib"] - model["process_mib"], 0),
            ]
        )
    head = ["records", "distinct chunks", "bare chunks/s", "pipeline chunks/s", "ratio (without pictures and export)",
            "1 % edited s (of cold)", "1 % deleted s (of cold)", "no-op s after imports",
            "peak beyond the model MiB"]  # fmt: skip
    if not rows:
        return []
    note = (
        "*Bare* is the same encoder on the same texts and nothing else, loading left out. The ratio counts everything "
        "that a cold build does after its imports; in brackets, without reading pictures and writing the model's ONNX "
        "form, which a home does once."
    )
    return ["### What it comes to", "", *table(head, rows), note, ""]


def _stage_table(facilities: Sequence[Facility]) -> list[str]:
    made: list[str] = []
    for step, title in _SYNCS[:4]:
        found = {one.records: _stages(one, step) for one in facilities}
        found = {records: stages for records, stages in found.items() if stages}
        names = list(dict.fromkeys(name for stages in found.values() for name in stages))
        rows = [[name, *(number(stages.get(name), 2) for stages in found.values())] for name in names]
        if rows:
            made += [f"### Seconds by stage, {title}", ""]
            made += table(["stage", *(f"{records:,}" for records in found)], rows)
    return made


def _stages(facility: Facility, step: str) -> dict[str, float]:
    return dict(facility.result(f"stages/{step}").get("result", {}).get("stages", {}))


def _work(facility: Facility, step: str) -> float | None:
    found: dict[str, Any] = facility.result(f"stages/{step}")
    return found["result"]["seconds"]["work"] + found["earlier_s"] if found else None


def _drawing(facilities: Sequence[Facility]) -> str:
    times: dict[str, list[tuple[float, float]]] = {}
    memory: dict[str, list[tuple[float, float]]] = {}
    for facility in facilities:
        for step, title in _SYNCS[:4]:
            found = facility.result(f"stages/{step}")
            if found:
                seconds = found["result"]["seconds"]["work"] + found["earlier_s"]
                times.setdefault(title, []).append((facility.records, seconds))
                memory.setdefault(title, []).append((facility.records, found["process_mib"]))
    return charts.growth([("Work after imports", "s", times), ("Peak of one process", "MiB", memory)])
