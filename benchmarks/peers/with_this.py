"""This project on a folder of documents: one wiki feed."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from unittest.mock import patch

import peer_work


class ThisProject:
    modes = ("hybrid", "dense")

    def __init__(self, store: Path) -> None:
        self._config = store / "facility.yaml"
        self._corpus = None

    def sync(self, folder: Path) -> dict[str, float]:
        from aps_rag_pipeline.models import opening
        from aps_rag_pipeline.settings import Settings
        from aps_rag_pipeline.sync import pipeline
        from benchmarks.work import Clock

        clock = Clock()
        exporting = clock.around(opening.ensure_exported, "export_s")
        with (
            patch.object(opening, "ensure_exported", exporting),
            pipeline.open_workspace(Settings.load(self._config)) as workspace,
        ):
            _, applied, _ = pipeline.sync(workspace)
            counted = {
                f"{name}s": workspace.catalog.value(f"select count(*) from {name}s", ())
                for name in ("chunk", "passage")
            }
        return {**counted, **applied.counts, **clock.seconds}

    def search(self, text: str, mode: str, depth: int) -> peer_work.Hits:
        corpus = self._opened()
        return [
            (hit.key.partition(":")[2], "" if depth < peer_work.DEPTH else self._text(hit.key))
            for hit in corpus.search(text, k=depth, mode=mode).hits
        ]

    def close(self) -> None:
        if self._corpus is not None:
            self._corpus.close()

    def _text(self, key: str) -> str:
        return "\n".join(passage.text for passage in self._opened().record(key).passages)

    def _opened(self):
        if self._corpus is None:
            from aps_rag_pipeline.settings import Settings
            from query import Corpus

            self._corpus = Corpus.open(Settings.load(self._config).home, None)
        return self._corpus


def load(store: Path, model: Path) -> ThisProject:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for name in ("lancedb", "tantivy", "aps_rag_pipeline.sync.pipeline", "query.corpus"):
        importlib.import_module(name)
    return ThisProject(store)


if __name__ == "__main__":
    peer_work.main(load)
