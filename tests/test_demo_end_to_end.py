"""The demo facility through the real jobs: its truth is found, after its next days, a purge, and in the graph too."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from aps_rag_pipeline.cli.job import run_job
from aps_rag_pipeline.demo.advance import advance
from aps_rag_pipeline.demo.truth import Truth, load_truth
from aps_rag_pipeline.demo.write import write
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores import bolt_server
from aps_rag_pipeline.stores.graph import Projection
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.releases import open_release
from aps_rag_pipeline.sync import pipeline
from aps_rag_pipeline.sync.projection import project
from aps_rag_pipeline.sync.purge import purge
from query import Corpus

RECORDS = 500


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """The command line sets these for its own process; here that is the test run's."""
    before = {name: os.environ.get(name) for name in ("DAGSTER_HOME", "APS_RAG_CONFIG", "DAGSTER_DISABLE_TELEMETRY")}
    yield
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def prepare(out: Path) -> Path:
    """The demo's settings with the encoder that needs no weights."""
    config = out / "facility.yaml"
    values = yaml.safe_load(config.read_text())
    values["models"] = {"embedding": "test:hash-64"}
    values["limits"] = {**values.get("limits", {}), "retention_hours": 0}
    config.write_text(yaml.safe_dump(values))
    return config


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "demo"
    write(out, records=RECORDS)
    config = prepare(out)
    outcome = run(config)
    assert outcome.ok, outcome.errors
    assert outcome.failed_checks == []
    return out


@pytest.fixture
def demo(synced: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    out = tmp_path / "demo"
    shutil.copytree(synced, out, symlinks=True)
    return out


def run(config: Path):
    os.environ.pop("DAGSTER_HOME", None)
    os.environ.pop("APS_RAG_CONFIG", None)
    return run_job(Settings.load(config), config, None)


def corpus(out: Path, groups: set[str] | None = None) -> Corpus:
    settings = Settings.load(out / "facility.yaml")
    return Corpus.open(settings.home, groups, shifts=settings.shifts)


def released_texts(out: Path) -> str:
    with open_release(Home(out / "home")) as release:
        tables = [release.table("passages"), release.chunks()]
        texts = [text for table in tables for text in table.to_arrow()["text"].to_pylist()]
        return "\n".join([*texts, *(str(row) for row in release.table("records").to_arrow().to_pylist())])


def keys(out: Path) -> set[str]:
    with open_release(Home(out / "home")) as release:
        return set(release.table("records").to_arrow()["key"].to_pylist())


def test_the_release_holds_every_record_of_every_source(synced: Path) -> None:
    truth = load_truth(synced)
    with open_release(Home(synced / "home")) as release:
        rows = release.table("records").to_arrow().select(["source", "key"]).to_pylist()
    counts = {source: sum(row["source"] == source for row in rows) for source in truth.counts}
    assert counts == truth.counts
    assert len(truth.counts) == 9


def test_a_second_run_changes_nothing(demo: Path) -> None:
    outcome = run(demo / "facility.yaml")
    assert outcome.ok
    # Copying moved the files' change times, so they are read again: what they say is the same.
    assert sum(n.get("changed", 0) for step, n in outcome.steps.items() if not step.startswith("sources/")) == 0
    outcome = run(demo / "facility.yaml")
    assert outcome.changed == 0


def test_every_identifier_finds_its_own_record_first_and_a_device_one_of_its_gold(synced: Path) -> None:
    truth = load_truth(synced)
    wrong = []
    with corpus(synced) as opened:
        for identifier in truth.identifiers:
            hits = [hit.key for hit in opened.search(identifier.text, k=1).hits]
            right = [identifier.own] if identifier.own else list(identifier.gold)
            if not hits or hits[0] not in right:
                wrong.append((identifier.kind, identifier.text, hits[:1], right[:3]))
    assert wrong == []
    assert {identifier.kind for identifier in truth.identifiers} >= {"key", "pv", "number", "device"}


def test_no_planted_credential_is_in_the_release_or_the_catalog(synced: Path) -> None:
    from aps_rag_pipeline.stores.catalog import unpack

    truth = load_truth(synced)
    assert truth.credentials
    texts = released_texts(synced)
    with pipeline.open_workspace(Settings.load(synced / "facility.yaml")) as workspace:
        bodies = [unpack(r["body"]).decode() for r in workspace.catalog.rows("select body from records")]
        masked = workspace.catalog.value("select sum(masked) from records")
    for credential in truth.credentials:
        assert credential.secret not in texts, credential.kind
        assert not any(credential.secret in body for body in bodies), credential.kind
    assert masked >= len(truth.credentials)


def test_a_reader_without_the_group_finds_no_restricted_record(synced: Path) -> None:
    truth = load_truth(synced)
    assert truth.restricted
    with corpus(synced, set()) as public, corpus(synced) as owner:
        for restricted in truth.restricted:
            for mode in ("hybrid", "dense", "sparse"):
                found = public.search(restricted.phrase, k=20, mode=mode).hits
                assert restricted.key not in {hit.key for hit in found}
            assert restricted.phrase not in public.ask(restricted.phrase).text.removeprefix(restricted.phrase)
            assert restricted.key in {hit.key for hit in owner.search(restricted.phrase, k=5).hits}
        assert public.status().records < owner.status().records


def test_text_in_screenshots_is_found_at_its_thread(synced: Path) -> None:
    truth = load_truth(synced)
    assert truth.screenshots
    with open_release(Home(synced / "home")) as release:
        rows = release.table("passages").to_arrow().select(["key", "text"]).to_pylist()
    texts: dict[str, str] = {}
    for row in rows:
        texts[row["key"]] = texts.get(row["key"], "") + row["text"]
    words = found = 0
    for shot in truth.screenshots:
        for word in " ".join(shot.text_lines).split():
            words += 1
            found += word in texts[shot.key]
    assert found / words > 0.85, f"{found} of {words} words"


def test_the_next_days_are_applied_exactly(demo: Path) -> None:
    run(demo / "facility.yaml")
    for _ in range(2):
        before = keys(demo)
        day = advance(demo)
        outcome = run(demo / "facility.yaml")
        assert outcome.ok, outcome.errors
        step = outcome.steps["changeset"]
        assert {name: step.get(name, 0) for name in ("added", "edited", "relabelled", "removed")} == {
            "added": len(day.added),
            "edited": len(day.edited),
            "relabelled": len(day.relabelled),
            "removed": len(day.deleted),
        }
        assert keys(demo) == before - {d.key for d in day.deleted} | {a.key for a in day.added}
        texts = released_texts(demo)
        for edited in day.edited:
            assert edited.old_text not in texts
            assert edited.new_text in texts
        for deleted in day.deleted:
            assert deleted.old_text not in texts
        touched = len(day.added) + len(day.edited)
        assert 0 < outcome.steps["embeddings"]["embedded"] <= 4 * touched
        with corpus(demo) as opened:
            for mode in ("hybrid", "dense", "sparse"):
                for gone in day.deleted:
                    assert gone.key not in {hit.key for hit in opened.search(gone.old_text, k=20, mode=mode).hits}
            for moved in day.relabelled:
                assert tuple(opened.record(moved.key).access) == tuple(sorted(moved.new))


def test_a_purged_record_is_nowhere_under_the_home(demo: Path) -> None:
    from aps_rag_pipeline.stores.catalog import unpack

    truth: Truth = load_truth(demo)
    victim = truth.restricted[0]
    settings = Settings.load(demo / "facility.yaml")
    with pipeline.open_workspace(settings) as workspace:
        assert purge(workspace, victim.key) == 1
        for table, column in (("records", "body"), ("passages", "text"), ("chunks", "text")):
            for row in workspace.catalog.rows(f"select {column} as data from {table} where {column} is not null"):
                assert victim.phrase.encode() not in unpack(row["data"])
    assert victim.phrase not in released_texts(demo)
    for path in (demo / "home").rglob("*"):
        if path.is_file():
            assert victim.phrase.encode() not in path.read_bytes(), path
    run(demo / "facility.yaml")
    assert victim.key not in keys(demo)


def test_the_projection_equals_the_tables_after_build_days_and_purge(demo: Path) -> None:
    settings = Settings.load(demo / "facility.yaml")
    home = Home(settings.home)

    def assert_equal() -> None:
        with open_release(home) as release:
            nodes = release.table("nodes").to_arrow().to_pylist()
            edges = release.table("edges").to_arrow().to_pylist()
        assert len(nodes) > RECORDS
        address = bolt_server.running(home)
        assert address is not None
        with Projection(address) as projection:
            differences = projection.verify(nodes, edges)
        assert not differences, differences.lines()

    bolt_server.up(home)
    try:
        run(demo / "facility.yaml")
        with pipeline.open_workspace(settings) as workspace:
            project(workspace)
        assert_equal()
        advance(demo)
        outcome = run(demo / "facility.yaml")
        assert outcome.steps["neo4j_projection"]["changed"] > 0
        assert_equal()
        with pipeline.open_workspace(settings) as workspace:
            purge(workspace, load_truth(demo).restricted[0].key)
        assert_equal()
        assert run(demo / "facility.yaml").steps["neo4j_projection"]["changed"] == 0
    finally:
        bolt_server.down(home)
