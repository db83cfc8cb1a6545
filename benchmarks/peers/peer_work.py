"""What every worker does alike, with the standard library only, since it runs in each system's own environment."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

#: (document id, text of the hit), best first.
Hits = list[tuple[str, str]]
DEPTH = 20
WARM_UP = 5


class System(Protocol):
    """A search system over a folder of documents, opened on its store."""

    modes: tuple[str, ...]

    def sync(self, folder: Path) -> dict[str, float]:
        """Bring the store up to the folder; gives what it counted, `chunks` among it."""

    def search(self, text: str, mode: str, depth: int) -> Hits: ...

    def close(self) -> None: ...


def main(load: Callable[[Path, Path], System]) -> None:
    """Do what the command line asks, and write figures to `--out`. `load(store, model)` imports all and opens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("sync", "search", "probe"))
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="folder of the embedding model")
    parser.add_argument("--documents", type=Path, help="folder to sync")
    parser.add_argument("--asked", type=Path, help="questions, or what to look for")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    started = time.perf_counter()
    system = load(given.store, given.model)
    opened = time.perf_counter()
    try:
        if given.action == "sync":
            found: dict[str, object] = dict(system.sync(given.documents))
        elif given.action == "search":
            found = _latencies(system, json.loads(given.asked.read_text()))
        else:
            found = {mode: _look(system, mode, json.loads(given.asked.read_text())) for mode in system.modes}
    finally:
        system.close()
    seconds = {"imports": opened - started, "work": time.perf_counter() - opened}
    given.out.write_text(json.dumps({**found, "seconds": seconds}))


def _latencies(system: System, questions: list[str]) -> dict[str, object]:
    """Seconds of each question by mode, after a few to warm up; `first_s` is the very first one of each mode."""
    found: dict[str, object] = {}
    for mode in system.modes:
        first, *taken = [_seconds(system, text, mode) for text in [*questions[: WARM_UP + 1], *questions]]
        found[mode] = {"first_s": first, "seconds": taken[WARM_UP:]}
    return found


def _seconds(system: System, text: str, mode: str) -> float:
    started = time.perf_counter()
    system.search(text, mode, 10)
    return time.perf_counter() - started


def _look(system: System, mode: str, probes: dict[str, list[tuple[str, str]]]) -> dict[str, list[int]]:
    """Of each kind of probe: how many came out right, and how many there are."""
    right: dict[str, list[int]] = {}
    for kind, asked in probes.items():
        count = 0
        for name, word in asked:
            hits = system.search(word, mode, DEPTH)
            count += _is_right(kind, name, word, hits)
        right[kind] = [count, len(asked)]
    return right


def _is_right(kind: str, name: str, word: str, hits: Hits) -> bool:
    if kind == "old":
        return all(word not in text for _, text in hits)
    if kind == "deleted":
        return all(found != name for found, _ in hits)
    return any(found == name and word in text for found, text in hits)
