"""Recorded values from an Archiver Appliance, and why a window is empty."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aps_rag_pipeline.demo.live.archiver import Server
from aps_rag_pipeline.demo.live.archiver_store import Archived, Store
from aps_rag_pipeline.demo.live.archiver_store import Sample as Stored
from aps_rag_pipeline.settings import Network
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.sources.net.http import Http
from aps_rag_pipeline.sources.pvs.history import History, history, latest
from tests.serving import FaultyServer, serving

START = datetime(2025, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def store() -> Store:
    samples = [Stored(int((START + n * HOUR).timestamp()), float(n), 250_000_000, severity=n % 4) for n in range(-2, 3)]
    samples += [Stored(int((START + 10 * HOUR).timestamp()), math.nan)]
    found = Store()
    found.put(Archived("S:DCCT", {"EGU": '5" pipe', "PREC": "2"}, created=START - 3 * HOUR, samples=samples))
    return found


@pytest.fixture
def server(store: Store) -> Iterator[FaultyServer]:
    with serving(Server(store)) as running:
        yield running


def read(server: FaultyServer, start: datetime, end: datetime, pv: str = "S:DCCT", **more: Any) -> History:
    with Http(Network(timeout_s=0.3, deadline_s=2, attempts=3, backoff_s=0.001)) as http:
        return history(http, server.url, pv, start, end, **more)


def test_samples_of_a_window_and_the_value_that_held_when_it_began(server: FaultyServer) -> None:
    found = read(server, START - HOUR / 2, START + 2.5 * HOUR)
    assert [(sample.value, sample.severity) for sample in found.samples] == [
        (0.0, "NO_ALARM"),
        (1.0, "MINOR"),
        (2.0, "MAJOR"),
    ]
    assert found.samples[0].time == START + timedelta(milliseconds=250)
    assert found.before is not None
    assert found.before.value == -1.0
    assert (found.units, found.verdict, found.truncated) == ('5" pipe', "", False)


def test_bins_and_bare_nan(server: FaultyServer) -> None:
    found = read(server, START, START + 3 * HOUR, operator="mean", bin_s=7200)
    assert (found.operator, [sample.value for sample in found.samples]) == ("mean_7200", [0.5, 2.0])
    assert read(server, START, START + 3 * HOUR, operator="max", max_samples=2).operator == "max_5400"
    assert "pv=max_5400%28S%3ADCCT%29" in server.requests[-1]
    (nan,) = read(server, START + 9 * HOUR, START + 11 * HOUR).samples
    assert isinstance(nan.value, float)
    assert math.isnan(nan.value)


def test_a_cut_is_told(server: FaultyServer) -> None:
    found = read(server, START, START + 3 * HOUR, max_samples=2)
    assert (len(found.samples), found.truncated) == (2, True)


@pytest.mark.parametrize("operator", ["", "mean"])
@pytest.mark.parametrize(
    ("start", "hours", "verdict", "said"),
    [
        (-30, 5, "before_archive", "archived since 2025-03-01T09:00:00.000Z"),
        (4, 3, "gap", "2.0 at 2025-03-01T14:00:00.250Z"),
        (20, 3, "after_archive", "nothing is recorded after 2025-03-01T22:00:00.000Z (status: Being archived)"),
    ],
)
def test_an_empty_window_says_why(
    server: FaultyServer, operator: str, start: int, hours: int, verdict: str, said: str
) -> None:
    found = read(server, START + start * HOUR, START + (start + hours) * HOUR, operator=operator)
    assert (found.samples, found.verdict) == ((), verdict)
    assert said in found.explanation


def test_what_is_not_archived_says_so(server: FaultyServer, store: Store) -> None:
    found = read(server, START, START + HOUR, pv="S:NOBODY")
    assert (found.verdict, "Not being archived" in found.explanation) == ("never_archived", True)
    store.requested = {"S:NOBODY"}
    assert "has not begun" in read(server, START, START + HOUR, pv="S:NOBODY").explanation
    store.put(Archived("S:NEW", created=START))
    assert read(server, START, START + HOUR, pv="S:NEW").verdict == "unknown"


def test_data_of_an_appliance_that_is_down_are_an_outage(server: FaultyServer, store: Store) -> None:
    store.down = {"appliance0"}
    with pytest.raises(OutageError, match="does not answer"):
        read(server, START, START + HOUR)
    with Http(Network()) as http, pytest.raises(OutageError, match="does not answer"):
        latest(http, server.url, "S:DCCT")


@pytest.mark.parametrize(("kind", "said"), [("torn", "cut off"), ("html", "Sign in"), ("status", "status 500")])
def test_a_broken_answer_is_an_outage(server: FaultyServer, kind: str, said: str) -> None:
    server.fail(kind, times=-1, path="getData")
    with pytest.raises(OutageError, match=said):
        read(server, START, START + HOUR)


def test_while_management_is_down_an_empty_window_stays_explained(server: FaultyServer) -> None:
    server.fail("status", times=-1, path="mgmt")
    found = read(server, START + 4 * HOUR, START + 5 * HOUR)
    assert found.verdict == "gap"


def test_the_latest_sample(server: FaultyServer, store: Store) -> None:
    with Http(Network()) as http:
        assert latest(http, server.url, "S:DCCT", now=START + 3 * HOUR).value == 2.0
        with pytest.raises(GoneError):
            latest(http, server.url, "S:NOBODY")
        store.put(Archived("S:NEW", created=START))
        assert latest(http, server.url, "S:NEW") is None


def test_wrong_questions_are_refused(server: FaultyServer) -> None:
    for start, end, operator in (
        (START, START - HOUR, ""),
        (START.replace(tzinfo=None), START, ""),
        (START, START + HOUR, "average"),
    ):
        with pytest.raises(ValueError, match=r"window|zone|average"):
            read(server, start, end, operator=operator)
    assert not server.requests
