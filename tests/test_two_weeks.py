"""Two weeks of the real sensors and jobs under a simulated clock."""

from __future__ import annotations

import http.server
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from aps_rag_pipeline import alerts, clock
from aps_rag_pipeline.definitions import defs
from aps_rag_pipeline.stores.catalog import unpack
from sensors.diffs import diff_sensors
from tests.live_cases.teams_graph import Case, message, put
from tests.live_feed import IMPATIENT
from tests.serving import FaultyServer, serving
from tests.small_facility import Facility

START = datetime(2026, 3, 2, 0, 10, tzinfo=UTC)
WATCHED = ("bely", "work_requests", "teams")
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class Fortnight:
    """Hourly ticks of three sensors; what they ask for is run. `launches` counts by source and day."""

    def __init__(self, facility: Facility, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
        self.facility, self.instance = facility, instance
        self.hour = 0
        self.launches: Counter[tuple[str, int]] = Counter()
        self.reasons: dict[tuple[str, int], str] = {}
        self.failed_checks: dict[tuple[str, int], list[str]] = {}
        self.told: list[tuple[int, str]] = []
        monkeypatch.setattr(clock, "now", lambda: START + timedelta(hours=self.hour))

    def live_through(self, events: dict[tuple[int, int], Callable[[], Any]], days: int) -> None:
        for self.hour in range(days * 24):
            day, hour = divmod(self.hour, 24)
            events.get((day, hour), lambda: None)()
            for sensor in diff_sensors:
                source = sensor.name.removesuffix("_diff")
                if source in WATCHED:
                    self._tick(sensor, source, day)
            self.told += [(day, feed) for feed in alerts.alert_outages(self.facility.settings)]

    def _tick(self, sensor: dg.SensorDefinition, source: str, day: int) -> None:
        with dg.build_sensor_context(instance=self.instance) as context:
            asked = sensor.evaluate_tick(context).run_requests or []
        for request in asked:
            self.launches[source, day] += 1
            self.reasons[source, day] = request.tags["aps_rag/reason"]
            job = defs.resolve_job_def(f"refresh_{source}")
            result = job.execute_in_process(instance=self.instance, raise_on_error=False, run_config=QUIET)
            assert result.success
            failed = [check.check_name for check in result.get_asset_check_evaluations() if not check.passed]
            self.failed_checks.setdefault((source, day), []).extend(failed)

    def days(self, source: str) -> dict[int, int]:
        return {day: count for (name, day), count in sorted(self.launches.items()) if name == source}


@pytest.fixture
def hook() -> Iterator[str]:
    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def chat() -> Iterator[tuple[Any, FaultyServer]]:
    case = Case()
    for number in (1, 2):
        case.put(number, f"first message of thread {number}")
    with serving(case.app) as server:
        yield case, server
    case.close()


def test_two_weeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str, chat: tuple[Any, FaultyServer]) -> None:
    case, server = chat
    facility = Facility(tmp_path)
    facility.log = {"shift-a": {1: "klystron tripped"}, "shift-b": {2: "vacuum recovered"}}
    facility.requests = {"20000": {"title": "Pump", "description": "replace it"}}
    feeds = [*facility.config["feeds"], {**case.feed(server.url), "network": IMPATIENT}]
    facility.extra = {"feeds": feeds, "alert": {"webhook": hook}}
    facility.write()
    monkeypatch.setenv("APS_RAG_CONFIG", str(facility.config_path))

    def log(document: str, log_id: int, text: str) -> None:
        facility.log[document][log_id] = text
        facility.write()

    def relabel() -> None:
        facility.extra["feeds"] = [{**feeds[0], "access": ["ops"]}, *feeds[1:]]
        assert facility.config_path.exists()

    broken, away = tmp_path / "log" / "shift-c.json", tmp_path / "away"
    events: dict[tuple[int, int], Callable[[], Any]] = {
        (2, 10): lambda: log("shift-a", 3, "an entry that came late"),
        (2, 13): lambda: log("shift-a", 1, "klystron tripped on overcurrent"),
        (4, 5): lambda: server.fail("status", status=503, times=-1, path="."),
        (4, 8): server.faults.clear,
        (5, 9): lambda: (tmp_path / "log").rename(away),
        (5, 12): lambda: away.rename(tmp_path / "log"),
        (6, 9): relabel,
        (8, 7): lambda: broken.write_text('{"document": '),
        (9, 12): lambda: (facility.log.update({"shift-c": {4: "the mended file"}}), facility.write()),
        (10, 6): lambda: put(case.channel(1), [message(11, "a late reply to an old thread", parent=10)]),
        (12, 6): lambda: log("shift-a", 1, "klystron tripped"),
    }
    with dg.DagsterInstance.ephemeral() as instance:
        weeks = Fortnight(facility, instance, monkeypatch)
        weeks.live_through(events, 14)

    assert weeks.days("work_requests") == {0: 1}, "nothing moved in it"

    logbook = weeks.days("bely")
    assert logbook[0] == 1
    assert logbook[2] == logbook[3] == 1, "two edits on one day are two runs a day apart"
    assert logbook[5] == 4, "after a failure it is tried with every look, until it goes well"
    assert weeks.reasons["bely", 6] == "the configuration of logbook moved"
    assert logbook[6] == 1
    assert logbook[8] == logbook[9] == 1
    assert "retry" in weeks.reasons["bely", 9]
    assert logbook[12] == 1, "a revert is a change"
    assert set(logbook) <= {0, 2, 3, 5, 6, 8, 9, 10, 12}
    assert "feeds_are_readable" in weeks.failed_checks["bely", 5]
    assert weeks.failed_checks["bely", 6] == []

    chats = weeks.days("teams")
    assert chats[10] == 1, "a late reply to an old thread"
    assert set(chats) == {0, 4, 10}
    assert weeks.told == [(4, "live"), (5, "logbook")], "once per outage"
    live = facility.live()
    assert {"BELY:1", "BELY:2", "BELY:3", "BELY:4", "WRQ:20000"} <= set(live)
    assert facility.everywhere()["bm25"] == set(live)
    with facility.workspace() as workspace:
        bodies = workspace.catalog.rows("select body from records where source = 'teams' and removed = 0")
        assert any(b"a late reply to an old thread" in unpack(row["body"]) for row in bodies)
