"""Latency, recall and memory of searches in a released home, warm, in one process, the question's embedding included.

    python -m benchmarks.large_home demo/home /tmp/large
    python -m benchmarks.search_latency /tmp/large demo/truth.json --json latency.json

Recall compares the hundred chunks that the dense channel finds nearest with the hundred that are, by their vectors. The
channel is asked for as many as a search asks it for: how many partitions and whole vectors it looks at goes by that.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.large_home import MADE
from query import Corpus
from query.filters import Filters, reader
from query.retrieval import AHEAD, DEPTH
from query.words import content_words

#: Filters by name: groups of the reader (None: the owner), and days before the newest record.
CASES: dict[str, tuple[frozenset[str] | None, int | None]] = {
    "none": (None, None),
    "label": (frozenset({"rf"}), None),
    "narrow label": (frozenset({"rf"}), None),
    "time": (None, 365),
    "narrow time": (None, 20),
    "label and time": (frozenset({"rf"}), 365),
}
WARM_UP = 15
_WORDINGS = ("{words}", "log entries about {words}", "what is known of {words}?", "notes and reports: {words}")


def wordings(text: str) -> list[str]:
    """Four other wordings of a question."""
    words = " ".join(content_words(text)) or text
    return [wording.format(words=words) for wording in _WORDINGS]


def questions(truth: Path, most: int) -> list[str]:
    asked = [question["text"] for question in json.loads(truth.read_text())["questions"]]
    return asked[:: max(len(asked) // most, 1)][:most]


def filters_of(case: str, newest: datetime) -> Filters:
    groups, days = CASES[case]
    labels = groups if case.startswith("narrow") else reader(groups)
    return Filters(groups=labels, since=None if days is None else newest - timedelta(days=days))


def latency(corpus: Corpus, texts: Sequence[str], since: datetime | None, several: bool) -> dict[str, float]:
    """Milliseconds of wall time and of CPU time."""
    wall, cpu = [], []
    warming = texts[:WARM_UP]
    for place, text in enumerate([*warming, *texts]):
        others = wordings(text) if several else []
        began, used = time.perf_counter(), time.process_time()
        corpus.search(text, since=since, variants=others)
        if place >= len(warming):
            wall.append(time.perf_counter() - began)
            cpu.append(time.process_time() - used)
    quantiles = {"p50": np.quantile(wall, 0.5), "p95": np.quantile(wall, 0.95), "cpu_p50": np.quantile(cpu, 0.5)}
    return {name: round(float(value) * 1000, 1) for name, value in quantiles.items()}


class Exact:
    """All vectors of the release in memory, with what filters look at."""

    def __init__(self, corpus: Corpus) -> None:
        table = corpus._snapshot.release.chunks()
        columns = ["chunk_id", "vector", "access", "created_at"]
        found = table.search().select(columns).limit(table.count_rows()).to_arrow()
        self.ids = np.array(found["chunk_id"].to_pylist())
        self.vectors = found["vector"].combine_chunks().values.to_numpy().reshape(len(self.ids), -1)
        self.labels = found["access"].to_pylist()
        self.created = found["created_at"].to_pylist()

    def newest(self) -> datetime:
        return max(created for created in self.created if created is not None)

    def recall(self, corpus: Corpus, vectors: np.ndarray, filters: Filters) -> dict[str, float]:
        admitted = [
            filters.admits(labels) and (filters.since is None or (created is not None and created >= filters.since))
            for labels, created in zip(self.labels, self.created, strict=True)
        ]
        ids, stored = self.ids[admitted], self.vectors[admitted]
        depth, shares = min(DEPTH, len(ids)), []
        if not depth:  # a small home may have nothing of the last days
            return {"rows": 0}
        for vector in vectors:
            nearest = ids[np.argsort(-(stored @ vector))[:depth]]
            found = corpus._snapshot.meaning.near(vector.reshape(1, -1), filters, AHEAD)[0]
            shares.append(len({hit.chunk_id for hit in found[:depth]} & set(nearest)) / depth)
        return {"mean": round(float(np.mean(shares)), 4), "least": round(min(shares), 2), "rows": len(ids)}


def measure(home: Path, texts: Sequence[str]) -> dict[str, Any]:
    told: dict[str, Any] = {"questions": len(texts), "latency_ms": {}, "recall_at_100": {}}
    with Corpus.open(home, None) as owner:
        told["chunks"] = owner.status().chunks
        newest = max(feed.newest_at for feed in owner.status().feeds if feed.newest_at is not None)
        for case, (groups, _) in CASES.items():
            if case == "narrow label":  # no reader is without `public`: for recall alone
                continue
            with Corpus.open(home, groups) as corpus:
                corpus.warm()
                since = filters_of(case, newest).since
                for several in (False, True):
                    name = f"{case}, {'five variants' if several else 'one variant'}"
                    told["latency_ms"][name] = latency(corpus, texts, since, several)
                    print(f"{name:32}", told["latency_ms"][name], flush=True)
        told["memory_mb"] = round(psutil.Process().memory_info().rss / 1e6)
        vectors = owner._snapshot.load_encoder().result().encode_query(list(texts))
        exact = Exact(owner)
        for case in CASES:
            told["recall_at_100"][case] = exact.recall(owner, vectors, filters_of(case, newest))
            print(f"recall, {case:24}", told["recall_at_100"][case], flush=True)
    for part, pattern in (("index", "lance/chunks_*.lance/_indices"), ("lance", "lance")):
        files = [file for folder in home.glob(pattern) for file in folder.rglob("*")]
        told[f"{part}_mb"] = round(sum(file.stat().st_size for file in files if file.is_file()) / 1e6)
    if (home / MADE).exists():
        told["made"] = json.loads((home / MADE).read_text())
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("truth", type=Path, help="truth.json of the demo facility, whose questions are asked")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    told = measure(given.home, questions(given.truth, given.questions))
    print(json.dumps({name: told[name] for name in told if name not in ("latency_ms", "recall_at_100")}))
    if given.json:
        given.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
