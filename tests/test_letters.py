"""`aps-rag failures`: listed, explained, tried again, forgotten."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from aps_rag_pipeline.cli import app
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.due import decide
from aps_rag_pipeline.sync.letters import UnknownLetterError, find, letters, retry
from tests.small_facility import Facility


@pytest.fixture
def facility(tmp_path):
    made = Facility(tmp_path)
    made.log = {"shift-a": {1: "klystron tripped"}}
    made.requests = {"20000": {"title": "Pump", "description": "replace it"}}
    made.write()
    made.sync()
    (tmp_path / "log" / "shift-b.json").write_text('{"document": {"id": 7, "name": "b"}, "entr')
    made.sync()
    return made


def run(facility, *arguments):
    return CliRunner().invoke(app, ["failures", *arguments, "-c", str(facility.config_path)])


def listed(facility):
    return json.loads(run(facility, "--json").stdout)


def test_a_failure_is_listed_with_place_reason_and_remedy(facility):
    (letter,) = listed(facility)
    assert letter["feed"] == "logbook"
    assert letter["place"] == "shift-b.json"
    assert letter["attempts"] == 1
    shown = run(facility).stdout
    assert letter["id"] in shown
    assert "1 failure" in shown


def test_it_is_explained(facility):
    (letter,) = listed(facility)
    told = run(facility, "explain", letter["id"][:4]).stdout
    assert letter["reason"] in " ".join(told.split())
    assert "none is served" in told
    assert "next try" in told


def test_unknown_ids_and_no_ids_are_told_apart(facility):
    assert run(facility, "explain", "zz").exit_code == 3
    assert run(facility, "explain").exit_code == 2
    assert run(facility, "retry").exit_code == 2
    assert run(facility, "forget").exit_code == 2


def test_retry_reads_the_item_though_its_file_has_not_moved(facility):
    (letter,) = listed(facility)
    facility.sync()
    assert listed(facility)[0]["attempts"] == 1, "it is not due yet"
    assert run(facility, "retry", letter["id"]).exit_code == 0
    found = state.read_feed(facility.home, "bely", "logbook")
    assert found.retry_at is not None
    decision = decide(facility.settings, "bely", datetime.now(UTC))
    assert decision.launch
    assert "retry" in decision.reason
    facility.sync()
    assert listed(facility)[0]["attempts"] == 2
    assert not decide(facility.settings, "bely", datetime.now(UTC)).launch


def test_what_is_forgotten_comes_back_when_it_fails_again(facility):
    assert run(facility, "forget", "--all", "--feed", "logbook").exit_code == 0
    assert listed(facility) == []
    assert state.read_feed(facility.home, "bely", "logbook").failures == 0
    facility.sync()
    assert listed(facility) == []
    (facility.root / "log" / "shift-b.json").write_text("[{")
    facility.sync()
    assert len(listed(facility)) == 1


def test_a_mended_item_leaves_the_list(facility):
    facility.log["shift-b"] = {2: "mended"}
    facility.write()
    facility.sync()
    assert listed(facility) == []


def test_a_picture_that_could_not_be_read_can_be_tried_again(facility):
    with facility.workspace() as workspace, workspace.catalog.transaction() as connection:
        connection.execute("insert into attachments select rid, 'ab12' from records where key = 'BELY:1'")
        connection.execute("insert into ocr values ('ab12', 0, 'eng', 'tesseract', '', 0, 'damaged', null)")
    with facility.workspace() as workspace:
        picture = next(letter for letter in letters(workspace.catalog) if letter.picture)
        assert picture.key == "BELY:1"
        assert picture.permanent
        retry(workspace, [picture])
        assert find(workspace.catalog, [picture.id])[0].retry_at is not None
        with pytest.raises(UnknownLetterError):
            find(workspace.catalog, [""])
    decision = decide(facility.settings, "downtime", datetime.now(UTC))
    assert not decision.launch, "no feed, no run"
    assert "pictures" in decide(facility.settings, "work_requests", datetime.now(UTC)).reason
