"""`aps-rag audit` as people and programs run it, and the check that follows each release in Dagster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from aps_rag_pipeline.audit.remembered import is_audited, read_last
from aps_rag_pipeline.cli import app
from aps_rag_pipeline.definitions import defs
from aps_rag_pipeline.stores.lock import HomeTakenError, WriterLock
from aps_rag_pipeline.stores.vectors import LanceTables
from tests.small_facility import Facility, kicker_facility

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@pytest.fixture
def facility(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Facility:
    made = kicker_facility(tmp_path)
    monkeypatch.setenv("APS_RAG_CONFIG", str(made.config_path))
    return made


def audit(*options: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, ["audit", "--json", *options])
    return result.exit_code, json.loads(result.stdout)


def damage(facility: Facility) -> None:
    LanceTables(facility.home).table("passages").delete("key = 'BELY:3'")


def test_the_command_tells_repairs_and_exits_by_what_is_left(facility: Facility) -> None:
    facility.sync()
    status, said = audit()
    assert (status, said["clean"], said["findings"], said["repair"]) == (0, True, [], None)
    assert said["checked"]["records"] == 6
    damage(facility)
    status, said = audit()
    assert status == 1
    assert said["counts"] == {"missing_row": 1}
    assert said["findings"] == [
        {
            "kind": "missing_row",
            "store": "lance passages",
            "id": "BELY:3#0",
            "key": "BELY:3",
            "problem": "is missing",
            "remedy": "aps-rag audit --repair",
        }
    ]
    table = CliRunner().invoke(app, ["audit"]).stdout
    assert "BELY:3#0" in table
    assert "1 things are wrong" in table
    status, said = audit("--repair")
    assert (status, said["clean"]) == (0, True)
    assert said["repair"]["before"]["counts"] == {"missing_row": 1}
    assert "published release 2" in said["repair"]["done"]
    assert audit("--deep")[0] == 0


def test_an_audit_waits_for_whoever_writes_and_gives_up_by_name(facility: Facility) -> None:
    facility.sync()
    with WriterLock(facility.home, 1, "a long sync"):
        result = CliRunner().invoke(app, ["audit"])
    assert isinstance(result.exception, HomeTakenError)  # `main` makes 75 of it
    assert "a long sync" in str(result.exception)


def test_a_home_without_a_sync_has_nothing_wrong(facility: Facility) -> None:
    status, said = audit()
    assert (status, said["notices"]) == (0, ["nothing has been synced yet"])


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def check(instance: dg.DagsterInstance) -> Any:
    result = defs.resolve_job_def("refresh_all").execute_in_process(
        instance=instance, raise_on_error=False, run_config=QUIET
    )
    assert result.success
    (found,) = (c for c in result.get_asset_check_evaluations() if c.check_name == "audit_is_clean")
    return found


def test_each_release_is_audited_once_unless_something_is_wrong(
    facility: Facility, instance: dg.DagsterInstance
) -> None:
    first = check(instance)
    assert first.passed
    assert first.metadata["looked_at_records"].value == 6
    last = read_last(facility.home)
    assert last is not None
    assert (last.release, last.findings) == (1, 0)

    table = LanceTables(facility.home).table("passages")
    table.update(where="key = 'BELY:3'", values={"text": "what it never said"})  # which no count shows
    again = check(instance)
    assert again.passed  # nothing was released since
    assert again.metadata["release"].value == 1
    assert again.metadata["audited_at"].value == last.at.timestamp()

    facility.log["shift-1"][6] = "Entry 6: recovered"
    facility.write()
    wrong = check(instance)
    assert not wrong.passed
    assert wrong.severity == dg.AssetCheckSeverity.ERROR
    assert wrong.metadata["count_different_row"].value == 1
    assert {row.data["id"] for row in wrong.metadata["findings"].records} == {"BELY:3#0"}
    last = read_last(facility.home)
    assert last is not None
    assert (last.release, last.findings, is_audited(facility.home, last)) == (2, 1, False)  # so it is looked at again
    assert audit("--repair")[0] == 0
    assert is_audited(facility.home, read_last(facility.home))
