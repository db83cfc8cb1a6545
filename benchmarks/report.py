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
#: Steps whose figures stand in the table of what grows.
_GROWING = ("stages/cold", "stages/noop", "stages/edit", "stages/delete", "search", "model")
_READING = """\
Every row is a process of its own. *Wall* is from its start to its end, *imports* the modules it needs, *work* the rest
inside it; *CPU* is user and system time of it and of the children it waited for. *Process* is the largest resident set
of any one process (`ru_maxrss` of the process and its waited-for children), *tree* the largest sum over the process and
all below it, sampled twice a second (shared pages count for each). *Disk* is what the home or store takes afterwards,
hard links once, the model's own files left out. Edits and deletions are spread evenly over all source files, so that
every file of every feed has to be read again: a real day touches fewer."""


#: The fact of a run that names its embedding model.
MODEL = "embedding model"


def is_deterministic(model: str) -> bool:
    """Whether vectors are made of hashes, without a model: then neither speed of encoding nor meaning is measured."""
    return model.startswith("test:")


def write(ledger: Ledger, facilities: Sequence[Facility], comparisons: Sequence[Comparison], name: str) -> Path:
    """Write the report of what is there so far; gives its path."""
    model = ledger.result("machine").get(MODEL, "unknown")
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
        *_growth(facilities),
        *([] if is_deterministic(model) else _rates(facilities)),
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
    if is_deterministic(model):
        told.append(
            "- **The embedder is deterministic, a hash of words and no model: seconds, memory and disk are those "
            "of everything but encoding, and what is found says nothing of meaning.**"
        )
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
    if not rows:
        return []
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


def _growth(facilities: Sequence[Facility]) -> list[str]:
    """What grows with the number of records, a row a size."""
    rows = []
    for facility in facilities:
        cold, model = facility.result("stages/cold"), facility.result("model")
        if not cold or not model:
            continue
        work = _work(facility, "cold")
        changes = [_work(facility, name) for name in ("edit", "delete")]
        found = facility.result("search").get("result", {}).get("hybrid")
        rows.append(
            [
                f"{facility.records:,}",
                number(cold["result"]["counts"].get("embeddings", {}).get("chunks"), 0),
                number(work),
                number(_work(facility, "noop"), 2),
                *(f"{number(change)} ({share(change, work, 3)})" for change in changes),
                f"{found['p50_ms']:.0f} / {found['p95_ms']:.0f}" if found else "–",
                " / ".join(number(cold[name] - model[name], 0) for name in ("process_mib", "tree_mib")),
                number(cold["disk_mib"], 0),
                sittings.of(*(facility.result(step) for step in _GROWING)),
            ]
        )
    head = ["records", "chunks", "cold build s", "no-op s", "1 % edited s (of cold)", "1 % deleted s (of cold)",
            "search p50 / p95 ms", "peak beyond the model MiB, process / tree", "disk MiB", "sitting"]  # fmt: skip
    if not rows:
        return []
    note = (
        "Seconds are *work*, after imports; a search is hybrid, warm, its question's embedding included; the peak is "
        "that of the cold build, less that of a process which opens the model and encodes one text."
    )
    return ["### What it comes to", "", *table(head, rows), note, ""]


def _rates(facilities: Sequence[Facility]) -> list[str]:
    """Chunks a second beside the bare encoder's."""
    rows = []
    for facility in facilities:
        cold, bare = facility.result("stages/cold"), facility.result("bare")
        if not cold or not bare:
            continue
        work = cold["result"]["seconds"]["work"] + cold["earlier_s"]
        once = sum(cold["result"]["stages"].get(name, 0.0) for name in ("ocr", "export of the model"))
        rate = bare["result"]["chunks"] / bare["result"]["seconds"]["encode"]
        texts = bare["result"]["distinct"]
        ours, rest = texts / work, texts / max(work - once, 1e-9)
        ratios = f"{ours / rate:.2f} ({rest / rate:.2f})"
        rows.append([f"{facility.records:,}", number(texts, 0), number(rate), number(ours), ratios])
    if not rows:
        return []
    head = ["records", "distinct chunks", "bare chunks/s", "pipeline chunks/s", "ratio (without pictures and export)"]
    note = (
        "*Bare* is the same encoder on the same texts and nothing else, loading left out. The ratio counts everything "
        "that a cold build does after its imports; in brackets, without reading pictures and writing the model's ONNX "
        "form, which a home does once."
    )
    return [*table(head, rows), note, ""]


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
    lines: dict[str, charts.Points] = {name: {} for name in ("seconds", "process_mib", "disk_mib", "search")}

    def put(name: str, label: str, facility: Facility, value: float) -> None:
        lines[name].setdefault(label, []).append((facility.records, value))

    for facility in facilities:
        for step, title in _SYNCS[:4]:
            found = facility.result(f"stages/{step}")
            if found:
                put("seconds", title, facility, found["result"]["seconds"]["work"] + found["earlier_s"])
                put("process_mib", title, facility, found["process_mib"])
                put("disk_mib", title, facility, found["disk_mib"])
        for mode in ("hybrid", "dense"):
            taken = facility.result("search").get("result", {}).get(mode, {})
            for name in ("p50", "p95"):
                if taken:
                    put("search", f"{mode}, {name}", facility, taken[f"{name}_ms"])
    return charts.growth(
        [
            ("Work after imports", "s", lines["seconds"]),
            ("Peak of one process", "MiB", lines["process_mib"]),
            ("Disk of the home", "MiB", lines["disk_mib"]),
            ("Search, warm", "ms", lines["search"]),
        ]
    )
