"""The part of the report that sets systems beside each other."""

from __future__ import annotations

from typing import Any

from benchmarks import sittings
from benchmarks.comparison import COMMAND, OURS, PEERS, STAGES, SYNCS, Comparison, System
from benchmarks.losses import KINDS, STEPS, factor, factors, latency, loss_lines, right, wall, work
from benchmarks.tables import number, table

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
        *_sizes(comparison, systems),
        *_right(comparison, systems),
        *loss_lines(comparison),
        *stopped,
        "",
    ]


def _speed(comparison: Comparison, systems: list[System]) -> list[str]:
    rows = [
        [_title(comparison, system), *_seconds(comparison, system), sittings.of(*_steps(comparison, system))]
        for system in systems
    ]
    added = [
        None
        if None in (whole := wall(comparison, COMMAND, step), alone := wall(comparison, STAGES, step))
        else whole - alone
        for step in SYNCS
    ]
    if any(seconds is not None for seconds in added):
        rows.append(["orchestration", *(cell for seconds in added for cell in (number(seconds), "–")), ""])
    return table(["", *_pairs("{step}, {what} s"), "sitting"], rows)


def _steps(comparison: Comparison, system: System) -> list[dict[str, Any]]:
    """All that was measured of a system."""
    return [comparison.result(system, step) for step in (*SYNCS, "search", "probe-edit", "probe-delete")]


def _seconds(comparison: Comparison, system: System) -> list[str]:
    return [number(measured(comparison, system, step)) for step in SYNCS for measured in (wall, work)]


def _pairs(form: str) -> list[str]:
    return [form.format(step=STEPS[step], what=what) for step in SYNCS for what in ("wall", "work")]


def _times_faster(comparison: Comparison) -> list[str]:
    """How many times longer each peer takes: its wall to that of the whole command, its work to that of the stages."""
    rows = [
        [
            peer.title,
            *(factor(ours, theirs) for step in SYNCS for _, ours, theirs in factors(comparison, peer, step)),
        ]
        for peer in PEERS
        if comparison.result(peer, "cold")
    ]
    return table(["times as long as this project", *_pairs("{step}, {what}")], rows) if rows else []


def _sizes(comparison: Comparison, systems: list[System]) -> list[str]:
    rows = []
    for system in systems:
        cold = comparison.result(system, "cold")
        rows.append(
            [
                _title(comparison, system),
                number(cold["cpu_s"], 0),
                f"{number(cold['process_mib'], 0)} / {number(cold['tree_mib'], 0)}",
                f"{number(cold['disk_mib'], 0)} / {cold['files']:,}",
                number(_chunks(cold), 0),
                *(_latency(latency(comparison, system, mode)) for mode in ("dense", "hybrid")),
            ]
        )
    head = ["", "cold CPU s", "cold peak MiB, process / tree", "store MiB / files", "chunks", "dense p50 / p95 ms",
            "hybrid p50 / p95 ms"]  # fmt: skip
    return table(head, rows)


def _right(comparison: Comparison, systems: list[System]) -> list[str]:
    rows = []
    for system in systems:
        for mode in ("hybrid", "dense"):
            found = [right(comparison, system, mode, step, kind) for step, kind, _ in KINDS]
            if any(found):
                cells = ["–" if counts is None else "{} of {}".format(*counts) for counts in found]
                rows.append([f"{system.title}, {mode}", *cells])
    return table(["", *(title for *_, title in KINDS)], rows) if rows else []


def _title(comparison: Comparison, system: System) -> str:
    versions = comparison.result(system, "versions")
    told = ", ".join(f"{name} {version}" for name, version in list(versions.items())[:1])
    return f"{system.title} ({told})" if told else system.title


def _chunks(found: dict[str, Any]) -> float | None:
    result = found["result"]
    if "steps" in result:
        return result["steps"].get("chunks", {}).get("chunks")
    return result.get("chunks")


def _latency(taken: dict[str, float]) -> str:
    return f"{number(taken['p50_ms'])} / {number(taken['p95_ms'])}" if taken else "–"
