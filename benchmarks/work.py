"""What a measured process does: `python -m benchmarks.work TASK …` writes its figures to `--out` as JSON.

Imports that a task needs are made first and timed apart, so that its work is told from the start of Python.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measuring import percentiles

_PIPELINE_MODULES = (
    "aps_rag_pipeline.sync.pipeline",
    "aps_rag_pipeline.sources",
    "lancedb",
    "tantivy",
    "duckdb",
    "numpy",
    "pyarrow",
)
WARM_UP = 5


class Clock:
    """Seconds by name, summed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def wrap(self, module: Any, name: str, shown: str) -> None:
        """Time a function wherever `module` calls it by its name."""
        setattr(module, name, self.around(getattr(module, name), shown))

    def around(self, inner: Callable[..., Any], shown: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.timed(shown):
                return inner(*args, **kwargs)

        return timed


def stages(config: Path) -> dict[str, Any]:
    """`sync.pipeline.sync` on a facility, with the seconds of each stage."""
    clock = Clock()
    with clock.timed("imports"):
        for name in _PIPELINE_MODULES:
            importlib.import_module(name)
        from aps_rag_pipeline.models import opening
        from aps_rag_pipeline.settings import Settings
        from aps_rag_pipeline.sync import pipeline

        settings = Settings.load(config)
    per_stage = Clock()
    for name in ("fetch", "apply_spool", "publish"):
        per_stage.wrap(pipeline, name, name)
    per_stage.wrap(opening, "ensure_exported", "export of the model")
    pipeline.STAGES = tuple(_timed_stage(per_stage, stage) for stage in pipeline.STAGES)
    with clock.timed("work"), pipeline.open_workspace(settings) as workspace:
        fetched, applied, reports = pipeline.sync(workspace)
    counts = {report.stage: dict(report.counts) for report in reports}
    embedded = sum(found.get("embedded", 0) for found in counts.values())
    return {
        "seconds": clock.seconds,
        "stages": per_stage.seconds,
        "applied": dict(applied.counts),
        "counts": counts,
        "embedded": embedded,
        "errors": [f"{report.feed}: {report.error}" for report in fetched if report.error],
        "failures": sum(len(report.failures) for report in fetched),
    }


def _timed_stage(clock: Clock, stage: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        report = stage(*args, **kwargs)
        taken = time.perf_counter() - started
        clock.seconds[report.stage] = clock.seconds.get(report.stage, 0.0) + taken
        return report

    return timed


def model(config: Path) -> dict[str, Any]:
    """Nothing but the model: opened, and one text encoded."""
    clock = Clock()
    with clock.timed("load"):
        encoder = _encoder(config)
        encoder.encode_passages(["one text"])
    return {"seconds": clock.seconds, "backend": encoder.backend, "model": encoder.description.name}


def bare(config: Path, most: int) -> dict[str, Any]:
    """The chunks of a synced facility, or `most` of them evenly, through the encoder and nowhere else."""
    from aps_rag_pipeline.models.encoder import WINDOW
    from aps_rag_pipeline.settings import Settings
    from aps_rag_pipeline.stores.catalog import unpack
    from aps_rag_pipeline.sync.pipeline import open_workspace

    clock = Clock()
    with clock.timed("load"):
        encoder = _encoder(config)
        encoder.encode_passages(["one text"])
    with open_workspace(Settings.load(config)) as workspace:
        catalog = workspace.catalog
        ids = [row["id"] for row in catalog.rows("select min(chunk_id) as id from chunks group by hash order by 1")]
        distinct = len(ids)
        ids = ids[:: -(-distinct // most)] if most and distinct > most else ids
        # Read in the pipeline's own blocks, outside the clock.
        for start in range(0, len(ids), WINDOW):
            texts = [
                unpack(catalog.value("select text from chunks where chunk_id = ?", (name,))).decode()
                for name in ids[start : start + WINDOW]
            ]
            with clock.timed("encode"):
                encoder.encode_passages(texts)
    return {"seconds": clock.seconds, "chunks": len(ids), "distinct": distinct, "backend": encoder.backend}


def _encoder(config: Path) -> Any:
    from aps_rag_pipeline.settings import Settings
    from aps_rag_pipeline.sync.model import configured_model

    settings = Settings.load(config)
    from aps_rag_pipeline.stores.home import Home

    return configured_model(settings, Home(settings.home)).encoder()


def search(config: Path, most: int) -> dict[str, Any]:
    """Latency of `Corpus.search` over the demo's questions, warm, the encoding of the question included."""
    from aps_rag_pipeline.demo.truth import load_truth

    texts = [question.text for question in load_truth(config.parent).questions][:most]
    started = time.perf_counter()
    from aps_rag_pipeline.settings import Settings
    from query import Corpus

    settings = Settings.load(config)
    with Corpus.open(settings.home, None, shifts=settings.shifts) as corpus:
        corpus.search(texts[0])
        first = time.perf_counter() - started
        found: dict[str, Any] = {"first_s": first}
        for mode in ("hybrid", "dense"):
            for text in texts[:WARM_UP]:
                corpus.search(text, mode=mode)
            found[mode] = percentiles([_seconds(partial(corpus.search, text, mode=mode)) for text in texts])
    return found


def marks(config: Path, plans: Path) -> dict[str, Any]:
    """Whether what was edited is found by the sentence that was added, and what was deleted is gone.

    `plans` holds `edited`, the sentences, and `deleted`, the citation keys.
    """
    from aps_rag_pipeline.settings import Settings
    from query import Corpus

    wanted = json.loads(plans.read_text())
    with Corpus.open(Settings.load(config).home, None) as corpus:
        return {
            "edited": len(wanted["edited"]),
            "edited_found": sum(_holds(corpus, mark) for mark in wanted["edited"]),
            "deleted": len(wanted["deleted"]),
            "deleted_gone": sum(_gone(corpus, key) for key in wanted["deleted"]),
        }


def _gone(corpus: Any, key: str) -> bool:
    from query.lookup import RecordNotFoundError

    try:
        corpus.record(key)
    except RecordNotFoundError:
        return all(hit.key != key for hit in corpus.search(key, k=20).hits)
    return False


def _holds(corpus: Any, mark: str) -> bool:
    token = mark.split()[-1].rstrip(".")
    return any(
        token in passage.text for hit in corpus.search(token, k=5).hits for passage in corpus.record(hit.key).passages
    )


def write(out: Path, records: int) -> dict[str, Any]:
    """A demo facility, replaced if a broken-off one lies there."""
    from aps_rag_pipeline.demo.write import write as write_demo

    summary = write_demo(out, records=records)
    return {"records": summary.records, "counts": summary.counts}


def document_set(config: Path | None, folder: Path) -> dict[str, Any]:
    """Plain documents for every system: the records of a synced demo with its questions, or the real reports."""
    from benchmarks import documents

    if config is None:
        texts, questions = documents.reports(), []
    else:
        from aps_rag_pipeline.demo.truth import load_truth

        texts = documents.demo_texts(config)
        questions = [question.text for question in load_truth(config.parent).questions]
    if texts:
        documents.make(folder, texts, questions)
    return {"documents": len(texts), "characters": sum(map(len, texts))}


def plan(config: Path, share: float, deletions: bool) -> dict[str, Any]:
    """Which records a step changes, as JSON pairs, so that a resumed step changes the same ones."""
    from benchmarks import editing

    phase, mark = (0.0, None) if deletions else (0.5, lambda number: f"Bench note qz{number:05d}.")
    found = editing.plan(config.parent / "feeds", share, phase, mark)
    return {source: [[*record, text] for record, text in changes.items()] for source, changes in found.items()}


def change(config: Path, plans: Path) -> dict[str, Any]:
    """Carry out a plan in the source files; gives the records changed by source."""
    from benchmarks import editing

    planned = json.loads(plans.read_text())
    made = editing.formats(config.parent / "feeds")
    return {
        source: made[source].change({(name, key): mark for name, key, mark in changes})
        for source, changes in planned.items()
    }


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "task", choices=("write", "set", "plan", "change", "stages", "model", "bare", "search", "marks")
    )
    parser.add_argument("--config", type=Path, help="facility.yaml; for `write` the folder to make")
    parser.add_argument("--set", type=Path, help="folder of a set of documents")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--deletions", action="store_true")
    parser.add_argument("--plans", type=Path)
    parser.add_argument("--most", type=int, default=0)
    given = parser.parse_args()
    tasks: dict[str, Callable[[], dict[str, Any]]] = {
        "write": lambda: write(given.config, given.records),
        "set": lambda: document_set(given.config, given.set),
        "plan": lambda: plan(given.config, given.share, given.deletions),
        "change": lambda: change(given.config, given.plans),
        "stages": lambda: stages(given.config),
        "model": lambda: model(given.config),
        "bare": lambda: bare(given.config, given.most),
        "search": lambda: search(given.config, given.most or 200),
        "marks": lambda: marks(given.config, given.plans),
    }
    given.out.write_text(json.dumps(tasks[given.task]()))


if __name__ == "__main__":
    main()
