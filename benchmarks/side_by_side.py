"""The part of the report that sets systems beside each other."""

from __future__ import annotations

from typing import Any

from benchmarks.comparison import COMMAND, OURS, PEERS, STAGES, SYNCS, Comparison, System
from benchmarks.measuring import percentiles
from benchmarks.tables import number, share, table

_KINDS = (
    ("edit", "new", "new words found"),
    ("edit", "old", "old words gone"),
    ("delete", "new", "still found after the deletions"),
    ("delete", "deleted", "deleted gone"),
    ("delete", "twins", "twins kept"),
)
_NOTES = """\
All read the same Markdown files and load the same MiniLM weights; chunks have at most 180 tokens. The peers run the
model in float32 under sentence-transformers, as they come; this project runs it in the fastest exact form that the
machine has. LlamaIndex: `upserts_and_delete` with a LanceDB store, its cache and its document store written to disk
after each run; its store rebuilds the full-text index in each process before the first hybrid question (not in the
latencies). haiku.rag: its batch interface imports, updates and deletes but does not compare, so the comparison by
digest is the benchmark's; paragraphs are handed over converted, imports in batches of 500; the model is a process
behind an OpenAI-compatible address, counted with it. A twin is a document with the very text of a deleted one: it has
to stay."""


def comparison_lines(comparison: Comparison) -> list[str]:
    """Speed, memory and rightness of every system on one set of documents."""
    systems = [system for system in (*OURS, *PEERS) if comparison.result(system, "cold")]
    stopped = [
        f"- {system.title}: stopped, {comparison.problems[system.name].splitlines()[0][:300]}"
        for system in (*OURS, *PEERS)
        if system.name in comparison.problems
    ]
    if not systems:
        return [f"## Side by side: {comparison.name}", "", *stopped, ""]
    found = [f"## Side by side: {comparison.name}", "", _NOTES, ""]
    exported = comparison.result(STAGES, "cold").get("result", {}).get("export_s")
    if exported:
        told = (
            f"Of this project's cold build, {exported:.1f} s are for the model's ONNX form, which a home writes once."
        )
        found += [told, ""]
    return [
        *found,
        *_speed(comparison, systems),
        *_times_faster(comparison),
        *_right(comparison, systems),
        *stopped,
        "",
    ]


def _speed(comparison: Comparison, systems: list[System]) -> list[str]:
    rows = []
    for system in systems:
        cold = comparison.result(system, "cold")
        asked = comparison.result(system, "search").get("result", {})
        rows.append(
            [
                _title(comparison, system),
                *(_seconds(comparison.result(system, step)) for step in SYNCS),
                number(cold["cpu_s"], 0),
                f"{number(cold['process_mib'], 0)} / {number(cold['tree_mib'], 0)}",
                f"{number(cold['disk_mib'], 0)} / {cold['files']:,}",
                number(_chunks(cold), 0),
                _latency(asked, "dense"),
                _latency(asked, "hybrid"),
            ]
        )
    head = ["", "cold s", "no-op s", "1 % edited s", "1 % deleted s", "no-op again s", "cold CPU s",
            "cold peak MiB, process / tree", "store MiB / files", "chunks", "dense p50 / p95 ms",
            "hybrid p50 / p95 ms"]  # fmt: skip
    return table(head, rows)


def _times_faster(comparison: Comparison) -> list[str]:
    """How many times longer each peer takes than this project with and without its orchestration."""
    rows = []
    for peer in PEERS:
        if not comparison.result(peer, "cold"):
            continue
        cells = []
        for step in SYNCS[:4]:
            theirs = comparison.result(peer, step).get("wall_s")
            ours = [comparison.result(system, step).get("wall_s") for system in (COMMAND, STAGES)]
            cells.append(f"{share(theirs, ours[0], 1)} ({share(theirs, ours[1], 1)})")
        rows.append([peer.title, *cells])
    if not rows:
        return []
    head = ["wall time ÷ `aps-rag sync` (÷ stages alone)", "cold", "no-op", "1 % edited", "1 % deleted"]
    return table(head, rows)


def _right(comparison: Comparison, systems: list[System]) -> list[str]:
    rows = []
    for system in systems:
        for mode in ("hybrid", "dense"):
            cells = []
            for step, kind, _ in _KINDS:
                found = comparison.result(system, f"probe-{step}").get("result", {}).get(mode)
                cells.append("–" if found is None else "{} of {}".format(*found[kind]))
            if any(cell != "–" for cell in cells):
                rows.append([f"{system.title}, {mode}", *cells])
    return table(["", *(title for *_, title in _KINDS)], rows) if rows else []


def _title(comparison: Comparison, system: System) -> str:
    versions = comparison.result(system, "versions")
    told = ", ".join(f"{name} {version}" for name, version in list(versions.items())[:1])
    return f"{system.title} ({told})" if told else system.title


def _seconds(found: dict[str, Any]) -> str:
    return number(found.get("wall_s"))


def _chunks(found: dict[str, Any]) -> float | None:
    result = found["result"]
    if "steps" in result:
        return result["steps"].get("chunks", {}).get("chunks")
    return result.get("chunks")


def _latency(asked: dict[str, Any], mode: str) -> str:
    if mode not in asked:
        return "–"
    taken = percentiles(asked[mode]["seconds"])
    return f"{number(taken['p50_ms'])} / {number(taken['p95_ms'])}"
