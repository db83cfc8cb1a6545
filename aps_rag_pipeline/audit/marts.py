"""Marts: each model computed anew and compared with its file. Equal tables give equal bytes."""

from __future__ import annotations

import filecmp
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.stores.sql_models import in_order, load_models
from aps_rag_pipeline.sync.marts import LAYERS, Read, write_model

STORE = "marts"


def check_marts(read: Read, folders: Sequence[tuple[str, Path, bool]], findings: Findings) -> None:
    """Compute every model over the tables that `read` gives and compare it with the files of `folders`: name of the
    store, folder, and whether it is that of a release, which has no staging models."""
    read = lru_cache(maxsize=None)(read)  # several models select from one table
    with tempfile.TemporaryDirectory(prefix="aps-rag-audit-") as name:
        scratch = Path(name)
        for model in in_order(load_models()):
            if model.layer not in LAYERS:
                continue
            file = f"{model.name}.parquet"
            write_model(model, scratch / file, read, scratch)
            for store, folder, released in folders:
                if released and model.layer != "marts":
                    continue
                findings.checked[store] += 1
                problem = _problem(scratch / file, folder / file)
                if problem:
                    kind = "missing_mart" if problem == "is missing" else "stale_mart"
                    findings.add(kind, store, model.name, problem)
                    findings.damage.republish = True
                    if not released:
                        findings.damage.marts.add(model.name)


def _problem(wanted: Path, found: Path) -> str:
    if not found.is_file():
        return "is missing"
    if filecmp.cmp(wanted, found, shallow=False) or _same_rows(wanted, found):
        return ""
    return "is not what its model gives now"


def _same_rows(wanted: Path, found: Path) -> bool:
    """Whether files of different bytes, as two versions of DuckDB write them, hold the same rows in the same order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return bool(pq.read_table(wanted).equals(pq.read_table(found)))
    except (pa.ArrowException, OSError):
        return False
