"""Where another system is faster, smaller or more often right, or this project not twice as fast: a sentence each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from benchmarks.comparison import COMMAND, PEERS, STAGES, SYNCS, Comparison, System
from benchmarks.measuring import percentiles
from benchmarks.tables import number

#: What this project is to be faster by, on every step.
WANTED = 2.0
STEPS = {
    "cold": "cold build",
    "noop": "no-op",
    "edit": "1 % edited",
    "delete": "1 % deleted",
    "noop-again": "no-op again",
}
MODES = ("dense", "hybrid")
KINDS = (
    ("edit", "new", "new words found"),
    ("edit", "old", "old words gone"),
    ("delete", "new", "still found after the deletions"),
    ("delete", "deleted", "deleted gone"),
    ("delete", "twins", "twins kept"),
)


def wall(comparison: Comparison, system: System, step: str) -> float | None:
    """Seconds from the start of a process to its end; None where it was not measured."""
    found = comparison.result(system, step)
    return found["wall_s"] + found["earlier_s"] if found else None


def work(comparison: Comparison, system: System, step: str) -> float | None:
    """Seconds of the same process after its imports; None where it was not measured or does not tell."""
    found = comparison.result(system, step)
    seconds = found.get("result", {}).get("seconds", {}).get("work")
    return None if seconds is None else float(seconds) + float(found["earlier_s"])


def factors(comparison: Comparison, peer: System, step: str) -> list[tuple[str, float | None, float | None]]:
    """(`wall` or `work`, seconds of this project, of the peer): its whole command's wall, its stages' work."""
    return [
        ("wall", wall(comparison, COMMAND, step), wall(comparison, peer, step)),
        ("work", work(comparison, STAGES, step), work(comparison, peer, step)),
    ]


def factor(ours: float | None, theirs: float | None) -> str:
    """How many times as long the other takes, rounded down: what is short of the goal must not read as if it met it."""
    return "–" if not ours or theirs is None else f"{math.floor(100 * theirs / ours) / 100:.2f}"


def latency(comparison: Comparison, system: System, mode: str) -> dict[str, float]:
    """`p50_ms` and `p95_ms` of warm questions; empty where none were asked."""
    asked = comparison.result(system, "search").get("result", {})
    return percentiles(asked[mode]["seconds"]) if mode in asked else {}


def right(comparison: Comparison, system: System, mode: str, step: str, kind: str) -> list[int] | None:
    """[right, asked] of a kind of probe."""
    found = comparison.result(system, f"probe-{step}").get("result", {}).get(mode)
    return None if found is None else found[kind]


def loss_lines(comparison: Comparison) -> list[str]:
    """Markdown list of all losses against the peers that were measured; nothing where there are no peers."""
    peers = [peer for peer in PEERS if comparison.result(peer, "cold")]
    if not peers:
        return []
    told = [line for peer in peers for line in (*_slower(comparison, peer), *_more(comparison, peer))]
    told = told or [f"Nowhere: every step and search is at least {WANTED:g} times as fast, and nothing takes more."]
    return ["### Where this project loses, or is less than twice as fast", "", *(f"- {line}" for line in told), ""]


def _slower(comparison: Comparison, peer: System) -> Iterator[str]:
    for step in SYNCS:
        for what, ours, theirs in factors(comparison, peer, step):
            yield from _sentence(f"{STEPS[step]}, {what}", peer, "s", ours, theirs)
    for mode in MODES:
        ours_ms, theirs_ms = (latency(comparison, system, mode) for system in (STAGES, peer))
        for name in ("p50", "p95"):
            yield from _sentence(
                f"{mode} search, {name}", peer, "ms", ours_ms.get(f"{name}_ms"), theirs_ms.get(f"{name}_ms")
            )


def _sentence(what: str, peer: System, unit: str, ours: float | None, theirs: float | None) -> Iterator[str]:
    if not ours or theirs is None or theirs >= WANTED * ours:
        return
    verdict = "this project loses" if theirs < ours else "less than twice as fast"
    taken = f"{number(ours)} {unit} against {number(theirs)} {unit}"
    yield f"{peer.title}, {what}: {verdict}, {taken} (factor {factor(ours, theirs)})."


def _more(comparison: Comparison, peer: System) -> Iterator[str]:
    """Memory and disk, of which this project may not take more, and probes, of which it may not miss more."""
    ours, theirs = (comparison.result(system, "cold") for system in (COMMAND, peer))
    for name, what in (
        ("process_mib", "peak of a process"),
        ("tree_mib", "peak of all processes"),
        ("disk_mib", "store"),
    ):
        if ours and ours[name] > theirs[name]:
            sizes = f"{number(ours[name], 0)} MiB against {number(theirs[name], 0)} MiB"
            yield f"{peer.title}, cold build, {what}: this project loses, {sizes}."
    for mode in MODES:
        for step, kind, title in KINDS:
            found: list[Any] = [right(comparison, system, mode, step, kind) for system in (STAGES, peer)]
            if None not in found and found[0][0] < found[1][0]:
                counts = "{} of {} against {} of {}".format(*found[0], *found[1])
                yield f"{peer.title}, {mode} search, {title}: this project loses, {counts}."
