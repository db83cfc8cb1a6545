"""The command line as people and programs meet it: messages, exit statuses, stable JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from aps_rag_pipeline.cli import app, job
from aps_rag_pipeline.settings import Settings, SettingsError
from tests.small_facility import Facility

AWKWARD = "log book, süd (alt) 2026"


def aps_rag(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("APS_RAG", "DAGSTER"))}
    command = [sys.executable, "-m", "aps_rag_pipeline.cli", *arguments]
    return subprocess.run(
        command, cwd=cwd, env={**env, **environment, "COLUMNS": "200"}, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def facility(tmp_path_factory: pytest.TempPathFactory) -> Facility:
    made = Facility(tmp_path_factory.mktemp("cli"))
    made.log = {"shift": {7: "Kicker HVPS at S35:KICKER:HVPS:VoltageM tripped. The thyratron was replaced."}}
    made.requests = {"20417": {"title": "[bold]Replace[/bold] thyratron", "description": "\u001b[31mred\u001b[0m text"}}
    made.write()
    assert made.config_path.is_file()
    done = aps_rag("sync", cwd=made.root)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_a_sync_shows_what_it_did_and_a_second_that_there_was_nothing(facility: Facility) -> None:
    done = aps_rag("sync", "--json", cwd=facility.root)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["changed"] == 0
    assert set(outcome["steps"]) >= {"changeset", "passages", "chunks", "embeddings", "dense_index", "release"}
    assert outcome["nothing_since"]
    assert outcome["run_id"] == ""
    assert "none was started" in aps_rag("sync", cwd=facility.root).stdout


@pytest.mark.parametrize("arguments", [["--reconcile"], ["--source", "bely"], []])
def test_a_reconciliation_and_one_source_are_run_whatever_has_moved(
    facility: Facility, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(job, "look_first", lambda _: job.Outcome("", True, nothing_since="an hour ago"))
    monkeypatch.setattr(job, "run_job", lambda *_, **__: job.Outcome("a run", True))
    done = CliRunner().invoke(app, ["sync", "--json", *arguments, "-c", str(facility.config_path)])
    assert json.loads(done.stdout)["run_id"] == ("a run" if arguments else "")


def test_status_tells_feeds_and_release(facility: Facility) -> None:
    found = json.loads(aps_rag("status", "--json", cwd=facility.root).stdout)
    assert found["release"] == 1
    assert found["counts"]["records"] == 2
    assert {feed["feed"]: feed["released_records"] for feed in found["feeds"]} == {"logbook": 1, "requests": 1}
    people = aps_rag("status", cwd=facility.root).stdout
    assert "logbook" in people
    assert "release 1" in people


def test_ask_and_search_answer_with_keys_or_say_that_they_cannot(facility: Facility) -> None:
    done = aps_rag("ask", "What happened to S35:KICKER:HVPS:VoltageM?", "--json", cwd=facility.root)
    answer = json.loads(done.stdout)
    assert done.returncode == 0, answer["reason"]
    assert "BELY:7" in answer["text"]
    nothing = aps_rag("ask", "What happened to WRQ 99999?", "--json", cwd=facility.root)
    assert nothing.returncode == 3
    assert not json.loads(nothing.stdout)["answered"]
    hits = json.loads(aps_rag("search", "WRQ:20417", "--json", cwd=facility.root).stdout)["hits"]
    assert hits[0]["key"] == "WRQ:20417"
    limited = aps_rag("search", "thyratron", "--source", "wiki", cwd=facility.root)
    assert limited.returncode == 3


def test_text_of_a_source_does_nothing_to_the_terminal(facility: Facility) -> None:
    for command in (("show", "WRQ:20417"), ("search", "thyratron"), ("ask", "WRQ:20417")):
        shown = aps_rag(*command, cwd=facility.root)
        assert "\x1b" not in shown.stdout
        assert "[bold]Replace[/bold]" in shown.stdout, command


def test_show_and_purge_of_a_key_that_is_not_there(facility: Facility) -> None:
    for command in (["show", "BELY:99"], ["purge", "BELY:99", "--yes"]):
        done = aps_rag(*command, cwd=facility.root)
        assert done.returncode == 3
        assert "BELY:99" in done.stderr
        assert "Traceback" not in done.stderr


def test_reading_before_anything_is_released_says_what_to_do(tmp_path: Path) -> None:
    made = Facility(tmp_path).write()
    assert made.config_path.is_file()
    done = aps_rag("ask", "anything", cwd=tmp_path)
    assert done.returncode == 1
    assert "aps-rag sync" in done.stderr


def test_without_a_configuration_the_remedy_is_named(tmp_path: Path) -> None:
    done = aps_rag("status", cwd=tmp_path)
    assert done.returncode == 2
    assert "facility.yaml: no such file" in done.stderr
    assert "aps-rag init" in done.stderr


def test_init_writes_a_file_that_loads_and_never_writes_over_one(tmp_path: Path) -> None:
    assert aps_rag("init", cwd=tmp_path).returncode == 0
    assert Settings.load(tmp_path / "facility.yaml").facility == "My facility"
    again = aps_rag("init", cwd=tmp_path)
    assert again.returncode == 2
    assert "--force" in again.stderr
    # The commented feeds are as right as the rest.
    lines = (tmp_path / "facility.yaml").read_text().split("feeds: []\n")[1].split("\nmodels:")[0].splitlines()
    feeds = yaml.safe_load("\n".join(line.removeprefix("# ").removeprefix("#") for line in lines))["feeds"]
    loaded = Settings.build({"feeds": feeds}, tmp_path / "facility.yaml")
    assert len(loaded.sources()) == 9


def test_config_check_says_per_feed_what_is_there_or_wrong(tmp_path: Path) -> None:
    made = Facility(tmp_path)
    made.requests = {"1": {"title": "a", "description": "b"}}
    made.write()
    (tmp_path / AWKWARD).mkdir()
    (tmp_path / AWKWARD / "a b,c.json").write_text("[]")
    (tmp_path / "requests" / "empty.csv").write_text("")
    made.extra["feeds"] = [
        {"name": "awkward", "source": "bely", "location": AWKWARD},
        {"name": "absent", "source": "wiki", "location": "no/such/folder"},
        {"name": "wrong-map", "source": "work_requests", "location": "requests", "columns": {"id": "Number"}},
        {"name": "wrong-form", "source": "bely", "location": "log", "form": "carrier-pigeon"},
    ]
    assert made.config_path.is_file()
    done = aps_rag("config", "check", "--json", cwd=tmp_path)
    assert done.returncode == 1
    found = {feed["feed"]: feed for feed in json.loads(done.stdout)["feeds"]}
    assert found["awkward"]["ok"]
    assert "no/such/folder" in found["absent"]["found"]
    assert "Number" in found["wrong-map"]["found"]
    assert "description" in found["wrong-map"]["found"]  # the headings there are
    assert "carrier-pigeon" in found["wrong-form"]["found"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("feeds: [", "not YAML"),
        ("- a list", "must be a mapping"),
        ("time_zone: Mars/Olympus", "Mars/Olympus"),
        ("feeds: [{name: a, source: bely, location: x}, {name: a, source: wiki, location: y}]", "unique"),
        ("feeds: [{name: a, source: telepathy, location: x}]", "feeds.0.source"),
        ("feeds: [{name: a, source: bely, location: x, access: []}]", "feeds.0.access"),
        ("limits: {max_file_mb: -1}", "limits.max_file_mb"),
        ("no_such_setting: 1", "no_such_setting"),
        ("feeds: [{name: a, source: downtime, location: x, columns: {id: No}}]", "quote it"),
    ],
)
def test_a_wrong_configuration_is_explained_with_file_and_place(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "facility.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        Settings.load(file)
    assert str(file) in str(caught.value)
    assert told in str(caught.value)


def test_the_environment_overrides_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "facility.yaml"
    file.write_text("facility: From file\nlimits: {max_file_mb: 10}\ngraph: {uri: 'bolt://127.0.0.1:7687'}\n")
    monkeypatch.setenv("APS_RAG_LIMITS__MAX_FILE_MB", "20")
    monkeypatch.setenv("APS_RAG_GRAPH__PASSWORD", "s3cret-word")
    loaded = Settings.load(file)
    assert (loaded.facility, loaded.limits.max_file_mb, loaded.limits.removal_floor) == ("From file", 20, 10)
    assert loaded.graph.password is not None
    assert loaded.graph.uri == "bolt://127.0.0.1:7687"
    assert "s3cret-word" not in repr(loaded)
    assert "s3cret-word" not in loaded.model_dump_json()


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['aps-rag', '--help']\n"
        "from aps_rag_pipeline.cli import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('dagster', 'lancedb', 'torch', 'pydantic', 'duckdb', 'openvino') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip().endswith("[]"), done.stdout[-300:]


def test_a_second_writer_exits_75_naming_the_holder(facility: Facility) -> None:
    from aps_rag_pipeline.stores.lock import WriterLock

    with WriterLock(facility.home, 1, "a night-long sync"):
        for command in (["sync"], ["purge", "BELY:7", "--yes"]):
            done = aps_rag(*command, cwd=facility.root, APS_RAG_LIMITS__LOCK_TIMEOUT_S="0.1")
            assert done.returncode == 75, done.stdout + done.stderr
            assert "a night-long sync" in done.stdout + done.stderr
