"""A purge beside those who read sources and catalog at the same time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aps_rag_pipeline.audit.run import audit
from aps_rag_pipeline.cli import app
from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.sync import pipeline, scrub
from aps_rag_pipeline.sync import purge as purging
from aps_rag_pipeline.sync.apply import ApplyReport, apply_spool
from aps_rag_pipeline.sync.fetch import fetch
from aps_rag_pipeline.sync.model import configured_model
from aps_rag_pipeline.sync.purge import purge
from aps_rag_pipeline.sync.workspace import Workspace
from tests.damaged_home import new_facility
from tests.small_facility import Facility


@pytest.fixture
def facility(tmp_path: Path) -> Facility:
    made = new_facility(tmp_path)
    made.sync()
    return made


def test_attachments_of_what_was_fetched_meanwhile_outlive_a_purge(
    facility: Facility, monkeypatch: pytest.MonkeyPatch
) -> None:
    purged = (facility.root / "log" / "attachments" / "trip400.txt").read_bytes()
    new = b"the waveform of a trip that was entered while the purge ran"

    def apply_and_fetch(workspace: Workspace) -> ApplyReport:
        applied = apply_spool(workspace)
        (facility.root / "log" / "attachments" / "new.txt").write_bytes(new)
        facility.log["shift-1"][116] = "Entry 16: recovered ![waveform](/log/attachments/new.txt)"
        facility.write()
        assert any(report.spooled for report in fetch(workspace, workspace.settings.feeds))
        return applied

    monkeypatch.setattr(purging, "apply_spool", apply_and_fetch)
    with facility.workspace() as workspace:
        purge(workspace, "BELY:400")
    blobs = facility.home.blobs
    assert {blobs.get(sha256) for sha256 in blobs} >= {new}
    assert purged not in {blobs.get(sha256) for sha256 in blobs}
    facility.sync()
    with facility.workspace() as workspace:
        found = audit(workspace, configured_model(facility.settings, facility.home), deep=True)
    assert found.listed == []
    assert found.checked["blobs"] == 2


def test_a_reader_of_the_catalog_leaves_a_purge_unfinished_until_the_next_sync(facility: Facility) -> None:
    text = b"what a reader of the catalog keeps in its log"
    facility.log["shift-1"][116] = text.decode()
    facility.write().sync()
    with sqlite3.connect(facility.home.catalog, isolation_level=None) as reader, facility.workspace() as workspace:
        reader.execute("begin")
        reader.execute("select count(*) from records").fetchone()
        workspace.catalog.connection.execute("pragma busy_timeout = 10")
        purge(workspace, "BELY:116")
        assert scrub.wanted(workspace.catalog)
        found = audit(workspace, configured_model(facility.settings, facility.home))
        assert [(each.kind, each.id) for each in found.listed] == [("behind", "purge")]
        reader.execute("rollback")
    reader.close()
    facility.sync()
    with facility.workspace() as workspace:
        assert not scrub.wanted(workspace.catalog)
        assert (facility.home.root / "catalog.sqlite-wal").stat().st_size < 100_000
        assert workspace.catalog.value("select count(*) from records where key = 'BELY:116' and removed = 1") == 1


def test_the_command_says_that_a_purge_is_unfinished(facility: Facility, monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(Catalog):
        def _keep_a_log(self) -> None:
            super()._keep_a_log()
            self.connection.execute("pragma busy_timeout = 10")

    monkeypatch.setattr(pipeline, "Catalog", Impatient)
    command = ["purge", "BELY:110", "--yes", "-c", str(facility.config_path)]
    with sqlite3.connect(facility.home.catalog, isolation_level=None) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from records").fetchone()
        told = CliRunner().invoke(app, command)
    reader.close()
    assert told.exit_code == 1
    assert "is served no more, but another process reads the catalog" in told.stderr
    assert "BELY:110" not in facility.live()
    assert CliRunner().invoke(app, command).exit_code == 0  # completes what was begun
    with facility.workspace() as workspace:
        assert not scrub.wanted(workspace.catalog)


def test_a_purge_sweeps_up_what_a_restore_has_left_that_was_cut_off(facility: Facility) -> None:
    draft = facility.home.restore_draft / "blobs"
    draft.mkdir(parents=True)
    (draft / "older").write_bytes(b"what an older backup held")
    with facility.workspace() as workspace:
        purge(workspace, "BELY:110")
    assert not facility.home.restore_draft.exists()
