"""Real runs of the real jobs on ephemeral instances: run, run again, fail, revert; sensors and alerts."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from aps_rag_pipeline import alerts
from aps_rag_pipeline.definitions import defs
from aps_rag_pipeline.settings import Alert
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.due import decide
from tests.small_facility import Facility, kicker_facility, tree

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@pytest.fixture
def facility(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Facility:
    made = kicker_facility(tmp_path)
    monkeypatch.setenv("APS_RAG_CONFIG", str(made.config_path))
    return made


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def run(job: str, instance: dg.DagsterInstance, **more: Any) -> dg.ExecuteInProcessResult:
    definition = defs.resolve_job_def(job)
    return definition.execute_in_process(instance=instance, raise_on_error=False, run_config=QUIET, **more)


def metadata(result: dg.ExecuteInProcessResult, key: str) -> dict[str, Any]:
    for event in result.get_asset_materialization_events():
        if event.materialization.asset_key.to_user_string() == key:
            return {name: value.value for name, value in event.materialization.metadata.items()}
    raise AssertionError(f"{key} was not materialised")


def failed_checks(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckSeverity]:
    return {check.check_name: check.severity for check in result.get_asset_check_evaluations() if not check.passed}


def test_a_full_run_publishes_and_the_second_changes_nothing(facility: Facility, instance: dg.DagsterInstance) -> None:
    first = run("refresh_all", instance)
    assert first.success
    assert failed_checks(first) == {}
    assert metadata(first, "changeset")["added"] == 6
    assert metadata(first, "release")["released_records"] == 6
    assert "data:image/svg+xml;base64," in metadata(first, "release")["records_by_source"]
    before = tree(facility.home.root)
    second = run("refresh_all", instance)
    assert second.success
    changed = {
        event.materialization.asset_key.to_user_string(): event.materialization.metadata["changed"].value
        for event in second.get_asset_materialization_events()
    }
    assert len(changed) == len(defs.resolve_asset_graph().get_all_asset_keys())
    assert set(changed.values()) == {0}
    assert tree(facility.home.root) == before
    versions = [
        {
            event.materialization.asset_key: event.materialization.tags["dagster/data_version"]
            for event in result.get_asset_materialization_events()
        }
        for result in (first, second)
    ]
    assert versions[0] == versions[1]


def test_a_source_job_carries_one_source_to_a_release(facility: Facility, instance: dg.DagsterInstance) -> None:
    run("refresh_all", instance)
    facility.log["shift-1"][9] = "Entry 9: recovered"
    facility.requests["20417"]["title"] = "Replaced thyratron"
    facility.write()
    result = run("refresh_bely", instance)
    assert result.success
    assert metadata(result, "changeset")["added"] == 1
    assert metadata(result, "changeset")["edited"] == 0  # the request is another source's change
    assert metadata(result, "embeddings")["embedded"] == 1
    assert "BELY:9" in facility.live()


def test_a_feed_that_fails_turns_its_check_red_and_leaves_the_others_alone(
    facility: Facility, instance: dg.DagsterInstance
) -> None:
    run("refresh_all", instance)
    facility.requests["20418"] = {"title": "New request", "description": "after the outage began"}
    facility.write()
    (facility.root / "log").rename(facility.root / "gone")
    result = run("refresh_all", instance)
    assert result.success
    assert failed_checks(result) == {"feeds_are_readable": dg.AssetCheckSeverity.ERROR}
    keys = set(facility.live())
    assert {"WRQ:20418", "BELY:1"} <= keys
    assert state.read_feed(facility.home, "bely", "logbook").error


def test_an_unreadable_file_is_a_warning_with_place_reason_and_remedy(
    facility: Facility, instance: dg.DagsterInstance
) -> None:
    (facility.root / "log" / "broken.json").write_text('{"document": ')
    result = run("refresh_bely", instance)
    assert result.success
    assert failed_checks(result) == {"items_are_readable": dg.AssetCheckSeverity.WARN}
    (check,) = [c for c in result.get_asset_check_evaluations() if c.check_name == "items_are_readable"]
    (row,) = check.metadata["failed_items"].records
    assert row.data["place"].startswith("broken.json")
    assert row.data["reason"]
    assert row.data["remedy"]


def test_reconciling_reads_everything_again_and_changes_nothing(
    facility: Facility, instance: dg.DagsterInstance
) -> None:
    run("refresh_all", instance)
    result = run("refresh_all", instance, tags={"aps_rag/reconcile": "true"})
    assert metadata(result, "sources/bely")["read"] == 5
    assert metadata(result, "changeset")["changed"] == 0
    assert releases.numbers(facility.home) == [1]


def test_a_run_that_fails_releases_the_home_and_the_next_completes_it(
    facility: Facility, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    import aps_rag_pipeline.sync.indexes as indexes

    def out_of_memory(*_: object) -> None:
        raise MemoryError("no memory for vectors")

    with monkeypatch.context() as broken:
        broken.setattr(indexes, "embed", out_of_memory)
        assert not run("refresh_all", instance).success
    assert releases.numbers(facility.home) == []
    assert decide(facility.settings, "bely", datetime.now(UTC)).launch
    assert run("refresh_all", instance).success
    assert metadata(run("refresh_all", instance), "release")["released_records"] == 6


def test_a_sensor_launches_daily_on_change_and_after_failures(facility: Facility, instance: dg.DagsterInstance) -> None:
    sensor = defs.get_repository_def().get_sensor_def("bely_diff")

    def tick() -> Any:
        context = dg.build_sensor_context(instance=instance, repository_def=defs.get_repository_def())
        return sensor(context)

    assert isinstance(tick(), dg.RunRequest)  # never read
    run("refresh_bely", instance)
    assert isinstance(tick(), dg.SkipReason)
    (facility.root / "log").rename(facility.root / "gone")
    run("refresh_bely", instance)
    assert isinstance(tick(), dg.RunRequest)  # it failed
    (facility.root / "gone").rename(facility.root / "log")
    run("refresh_bely", instance)
    assert isinstance(tick(), dg.SkipReason)


def test_when_a_source_is_due(facility: Facility, instance: dg.DagsterInstance) -> None:
    run("refresh_all", instance)
    now = datetime.now(UTC)
    tomorrow = now + timedelta(days=1)
    assert not decide(facility.settings, "bely", now).launch
    assert not decide(facility.settings, "bely", tomorrow).launch  # a day has passed, nothing moved
    original = facility.log["shift-1"][1]
    facility.log["shift-1"][1] = "edited"
    facility.write()
    assert not decide(facility.settings, "bely", now).launch  # moved, but within the day
    assert decide(facility.settings, "bely", tomorrow).launch
    run("refresh_bely", instance)
    facility.log["shift-1"][1] = original  # a state that was there before is a change like any other
    facility.write()
    assert decide(facility.settings, "bely", tomorrow).launch
    run("refresh_bely", instance)
    facility.extra["time_zone"] = "Europe/Paris"
    assert decide(facility.settings, "bely", tomorrow).reason.startswith("the configuration of logbook moved")
    assert not decide(facility.settings, "icms", tomorrow).launch


def test_a_retry_is_due_when_its_time_has_come(facility: Facility, instance: dg.DagsterInstance) -> None:
    facility.log["shift-2"] = {1: "the id of an entry that is there"}
    facility.write()
    run("refresh_bely", instance)
    known = state.read_feed(facility.home, "bely", "logbook")
    assert known.failures == 1
    assert known.retry_at is not None
    assert not decide(facility.settings, "bely", known.retry_at - timedelta(minutes=1)).launch
    assert decide(facility.settings, "bely", known.retry_at + timedelta(minutes=1)).launch


class _Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(json.loads(body))
        self.send_response(self.server.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def webhook() -> Iterator[Any]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    server.received, server.answer = [], 200
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_outage_is_told_once_and_a_later_one_again(
    facility: Facility, instance: dg.DagsterInstance, webhook: Any
) -> None:
    facility.extra["alert"] = {"webhook": f"http://127.0.0.1:{webhook.server_port}/secret-path"}
    assert facility.config_path.is_file()
    run("refresh_bely", instance)
    sensor = defs.get_repository_def().get_sensor_def("feed_outage_alert")

    def tick() -> None:
        sensor(dg.build_sensor_context(instance=instance))

    tick()
    assert webhook.received == []
    for _ in range(2):
        (facility.root / "log").rename(facility.root / "gone")
        run("refresh_bely", instance)
        tick()
        tick()
        (facility.root / "gone").rename(facility.root / "log")
        run("refresh_bely", instance)
        tick()
    assert len(webhook.received) == 2
    assert "logbook" in webhook.received[0]["title"]
    assert str(facility.root / "log") in webhook.received[0]["message"]


def test_a_failed_run_is_told_with_its_reason(facility: Facility, webhook: Any, instance: dg.DagsterInstance) -> None:
    facility.extra["alert"] = {"webhook": f"http://127.0.0.1:{webhook.server_port}/"}
    facility.extra["models"] = {"embedding": "/no/such/model"}
    assert facility.config_path.is_file()
    result = run("refresh_all", instance)
    assert not result.success
    failure = next(event for event in result.all_events if event.event_type_value == "PIPELINE_FAILURE")
    sensor = defs.get_repository_def().get_sensor_def("run_failure_alert")
    dagster_run = instance.get_run_by_id(result.run_id)
    assert dagster_run is not None
    context = dg.build_run_status_sensor_context(
        "run_failure_alert", dagster_instance=instance, dagster_run=dagster_run, dagster_event=failure
    ).for_run_failure()
    sensor(context)
    assert "refresh_all failed" in webhook.received[0]["title"]


def test_an_alert_that_cannot_be_delivered_says_so_without_the_address(webhook: Any) -> None:
    webhook.answer = 500
    alert = Alert(webhook=f"http://127.0.0.1:{webhook.server_port}/hidden-token")
    with pytest.raises(alerts.AlertError) as caught:
        alerts.send(alert, "subject", "text")
    assert "hidden-token" not in str(caught.value)
    assert not alerts.send(Alert(), "subject", "text")


class _Mailbox(socketserver.StreamRequestHandler):
    """Speaks as much SMTP as one message needs."""

    def handle(self) -> None:
        self.wfile.write(b"220 ready\r\n")
        lines: list[str] = []
        for line in iter(self.rfile.readline, b""):
            command = line.strip().upper()
            if command == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = [text.decode() for text in iter(self.rfile.readline, b".\r\n")]
                self.server.received.append("".join(lines))
            if command == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            self.wfile.write(b"250 ok\r\n")


def test_an_alert_goes_by_mail_and_one_line_of_subject_stays_one() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), _Mailbox) as server:
        server.received = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        alert = Alert(email_to="ops@example.org", smtp_host="127.0.0.1", smtp_port=server.server_address[1])
        try:
            assert alerts.send(alert, "Ring: feed logbook\r\nBcc: someone@example.org", "cannot be reached")
        finally:
            server.shutdown()
            thread.join()
    (message,) = server.received
    head, _, body = message.partition("\r\n\r\n")
    assert "To: ops@example.org" in head
    assert "\r\nBcc:" not in head
    assert "cannot be reached" in body
