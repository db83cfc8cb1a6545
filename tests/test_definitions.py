"""The code location: what it declares, and what loading it must not cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from aps_rag_pipeline.definitions import defs
from aps_rag_pipeline.records import SOURCES

ROOT = Path(__file__).resolve().parents[1]


def test_everything_loads() -> None:
    dg.Definitions.validate_loadable(defs)


def test_every_asset_is_described_owned_grouped_and_versioned() -> None:
    graph = defs.resolve_asset_graph()
    assert graph.external_asset_keys == set()  # a misspelt dependency would appear here
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description, key
        assert node.owners, key
        assert node.group_name != "default", key
        assert node.code_version, key
        assert node.kinds, key


def test_the_lineage_is_the_way_of_the_data() -> None:
    graph = defs.resolve_asset_graph()

    def parents(name: str) -> set[str]:
        return {key.to_user_string() for key in graph.get(dg.AssetKey(name.split("/"))).parent_keys}

    assert parents("changeset") == {f"sources/{source}" for source in SOURCES}
    assert parents("ocr") == {"changeset"}
    assert parents("passages") == {"ocr"}
    assert parents("chunks") == {"passages"}
    assert parents("embeddings") == {"chunks"}
    assert parents("dense_index") == {"embeddings"}
    assert parents("sparse_index") == {"chunks"}
    assert parents("knowledge_graph") == {"passages"}
    assert parents("neo4j_projection") == {"knowledge_graph"}
    assert parents("downtime_by_system") == {"stg_downtime"}
    assert parents("stg_downtime") == {"dense_index"}
    assert {"dense_index", "sparse_index", "knowledge_graph", "source_freshness"} <= parents("release")


def test_there_is_a_job_and_a_sensor_per_source_and_one_job_for_all() -> None:
    repository = defs.get_repository_def()
    assert {f"refresh_{source}" for source in SOURCES} | {"refresh_all"} <= set(repository.job_names)
    for source in SOURCES:
        sensor = repository.get_sensor_def(f"{source}_diff")
        assert sensor.minimum_interval_seconds == 3600
        job = defs.resolve_job_def(f"refresh_{source}")
        assert len(job.graph.node_dict) < len(defs.resolve_job_def("refresh_all").graph.node_dict)
    assert repository.get_schedule_def("weekly_reconcile").cron_schedule == "30 3 * * 0"


def test_loading_imports_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "sentence_transformers", "unstructured", "openvino", "lancedb", "pytesseract")
    code = f"import sys, aps_rag_pipeline.definitions; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_workspace_file_loads() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def _imports(path: Path) -> set[str]:
    """Dotted names that a module imports, each with what it takes from there."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", ["aps_rag_pipeline", "query", "assets", "sensors"])
def test_imports_go_one_way(package: str) -> None:
    allowed_roots = {ROOT / "aps_rag_pipeline" / "definitions.py", *_modules("aps_rag_pipeline/cli")}
    refused = {
        "aps_rag_pipeline": {"query", "assets", "sensors", "dagster", "tests"},
        "query": {"assets", "sensors", "dagster", "tests", "torch"},
        "assets": {"query", "sensors", "tests"},
        "sensors": {"query", "tests"},
    }[package]
    for path in _modules(package):
        if path in allowed_roots:
            continue
        names = {name.split(".")[0] for name in _imports(path)}
        assert not names & refused, path


def test_query_reads_only_the_read_side() -> None:
    allowed = ("settings", "records", "models", "stores", "knowledge.identifiers")
    for path in _modules("query"):
        for name in _imports(path):
            if name.startswith("aps_rag_pipeline."):
                assert name.removeprefix("aps_rag_pipeline.").startswith(allowed), (path, name)
                assert "catalog" not in name, path


def test_dagster_files_keep_their_annotations() -> None:
    """Postponed annotations hide the types of `context` and `config` from Dagster."""
    for path in [*_modules("assets"), *_modules("sensors")]:
        assert "from __future__ import annotations" not in path.read_text("utf-8"), path
