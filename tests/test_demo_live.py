"""The demo facility asked through its own services holds the same records as read from its files."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aps_rag_pipeline.demo import advance, write
from aps_rag_pipeline.demo.live.serve import SERVICES, SETTINGS, PortTakenError, serving
from aps_rag_pipeline.records import Record, decode_record
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores.catalog import unpack
from aps_rag_pipeline.sync import pipeline
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.fetch import fetch


def records(path: Path) -> dict[str, dict[str, Record]]:
    """Sync up to the catalog; the live records by feed and id."""
    settings = Settings.load(path)
    with pipeline.open_workspace(settings) as workspace:
        reports = fetch(workspace, settings.feeds)
        assert [(report.feed, report.error) for report in reports if report.error] == []
        assert [failure for report in reports for failure in report.failures] == []
        apply_spool(workspace)
        found: dict[str, dict[str, Record]] = {feed.name: {} for feed in settings.feeds}
        for row in workspace.catalog.rows("select feed, id, body from records where removed = 0"):
            found[row["feed"]][row["id"]] = decode_record(unpack(row["body"]))
    return found


def bare(record: Record, feed: str) -> dict[str, Any]:
    """What a reader sees of a record, without what only its files can say."""
    values = msgspec.to_builtins(record)
    values.pop("modified_at", None)
    fields = dict(values.pop("fields", {}))
    if feed == "documents":  # a content server knows no folders, and no file names of older revisions
        fields["file"] = fields["file"].rpartition("/")[2]
        fields["revisions"] = [", ".join(told.split(", ")[:3]) for told in fields.get("revisions", [])]
        values["links"] = [(link["kind"], link["target"]) for link in values.get("links", ())]
    if feed == "epics":  # an archiver knows neither groups nor friendly names, but how it archives
        fields = {name: fields.get(name) for name in ("description", "units")}
        values.pop("parts")
    return {**values, "fields": fields}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo")
    write(out, seed=7, records=300)
    return out


def test_services_and_files_give_the_same_records_also_on_the_next_day(demo: Path) -> None:
    with serving(demo, 0):
        for day in range(2):
            if day:
                advance(demo)
            files, live = records(demo / "facility.yaml"), records(demo / SETTINGS)
            for service in SERVICES:
                name = service.feed
                assert set(live[name]) == set(files[name]), f"{name} on day {day}"
                different = [i for i in files[name] if bare(live[name][i], name) != bare(files[name][i], name)]
                assert different == [], (
                    f"{name}: {len(different)} of {len(files[name])}",
                    bare(live[name][different[0]], name),
                    bare(files[name][different[0]], name),
                )


def test_a_taken_port_is_told(demo: Path) -> None:
    with serving(demo, 0) as urls:
        port = int(urls["bely"].rsplit(":", 1)[1])
        with pytest.raises(PortTakenError, match=str(port)), serving(demo, port):
            pass


def test_serve_writes_settings_and_ends_with_a_signal(demo: Path) -> None:
    (demo / SETTINGS).unlink(missing_ok=True)
    command = [sys.executable, "-u", "-m", "aps_rag_pipeline.cli", "demo", "serve", "--out", str(demo), "--port", "0"]

    def hear() -> None:  # whoever runs the tests in the background may have them ignore it, and children inherit that
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=hear) as process:
        assert process.stdout is not None
        shown = ""
        for line in process.stdout:
            shown += line
            if "ctrl-c" in line:
                break
        process.send_signal(signal.SIGINT)
        shown += process.stdout.read()
    assert process.returncode == 0
    assert "Microsoft Graph" in shown
    assert "have ended" in shown
    feeds = {feed["name"]: feed for feed in yaml.safe_load((demo / SETTINGS).read_text())["feeds"]}
    assert feeds["bely"]["form"] == "rest"
    assert feeds["downtime"]["location"] == "feeds/downtime"


def test_no_demo_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aps_rag_pipeline.cli", "demo", "serve", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "holds no demo facility" in done.stderr
