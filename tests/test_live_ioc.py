"""PVs of a real IOC, over Channel Access and PVAccess."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from aps_rag_pipeline.records import Record
from aps_rag_pipeline.settings import Feed, Limits, Network
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Complete, Cursor, Failure, FeedError, SourceContext, Upsert
from aps_rag_pipeline.sources.pvs.answers import Patience
from aps_rag_pipeline.sources.pvs.channel_access import ChannelAccess
from aps_rag_pipeline.sources.pvs.current import read_now
from tests.ioc import Ioc, ioc

NAMES = ["T:CUR", "T:MODE", "T:SHUT", "T:TRACE", "T:SAID", "T:TURN"]
#: Long enough for an IOC on a busy machine; only what does not answer takes that long.
PATIENT, IMPATIENT = Network(timeout_s=8), Network(timeout_s=1)
DB = """
record(ao, "$(P):CUR") {
    field(DESC, "Stored \\"beam\\"")
    field(EGU, "mA")
    field(PREC, "2")
    field(HOPR, "250")
    field(LOPR, "0")
    field(HIHI, "220")
    field(HIGH, "210")
}
record(mbbo, "$(P):MODE") {
    field(DESC, "Mode of the ring")
    field(ZRST, "Off")
    field(ONST, "Top-up")
    field(TWST, "Study")
}
record(bo, "$(P):SHUT") {
    field(DESC, "Shutter")
    field(ZNAM, "Closed")
    field(ONAM, "Open")
}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Ioc]:
    with ioc() as found:
        yield found


@pytest.fixture(params=["channel_access", "pvaccess"])
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


def address(protocol: str, where: Ioc) -> dict[str, Any]:
    if protocol == "channel_access":
        return {"addresses": [where.ca]}
    return {"addresses": ["127.0.0.1"], "port": where.pva_port}


class Reader:
    def __init__(self, protocol: str, network: Network = PATIENT, **feed: Any) -> None:
        self.network = network
        self.settings = {"name": "pvs", "source": "epics", "form": protocol, **feed}
        self.cursor: Any = None
        self.records: dict[str, Record] = {}
        self.failures: list[Failure] = []

    def sync(self, retry: frozenset[str] = frozenset()) -> list[Any]:
        source = open_source(Feed(**self.settings), SourceContext(ZoneInfo("UTC"), {}, Limits(), self.network))
        changes = list(source.changes(self.cursor, retry))
        assert isinstance(changes[-1], Cursor)
        self.cursor = json.loads(json.dumps(changes[-1].value))
        self.failures = [change for change in changes if isinstance(change, Failure)]
        given = {change.unit: change.record for change in changes if isinstance(change, Upsert)}
        for change in changes:
            if isinstance(change, Complete) and change.unit not in given:
                self.records.pop(change.unit, None)
        self.records |= given
        return changes[:-1]


def put(where: Ioc, **values: Any) -> None:
    """Write to records, or to fields of them (`CUR__DESC`), and wait until it is done."""
    with closing(ChannelAccess([where.ca], None, PATIENT.timeout_s)) as client:
        for name, value in values.items():
            (pv,) = client._context.get_pvs(f"T:{name.replace('__', '.')}")
            pv.wait_for_connection(timeout=PATIENT.timeout_s)
            pv.write(value, wait=True, timeout=PATIENT.timeout_s)


def test_a_record_says_what_the_ioc_says(running: Ioc, protocol: str) -> None:
    reader = Reader(protocol, options={"names": NAMES, **address(protocol, running)})
    reader.sync()
    assert list(reader.records) == NAMES
    current = dict(reader.records["T:CUR"].fields)
    assert reader.records["T:CUR"].title == 'T:CUR (Stored "beam")'
    assert current == {
        **{"description": 'Stored "beam"', "units": "mA", "record_type": "ao", "data_type": "double"},
        **{"prec": 2, "hopr": 250, "lopr": 0, "hihi": 220, "high": 210},
    }
    mode = reader.records["T:MODE"]
    assert mode.fields["onst"] == "Top-up"
    assert "TWST: Study" in mode.parts[0].text
    assert (reader.records["T:SHUT"].fields["znam"], reader.records["T:SHUT"].fields["onam"]) == ("Closed", "Open")
    assert reader.records["T:TRACE"].fields["data_type"] == "array of double"
    assert reader.records["T:SAID"].fields["data_type"] == "string"
    assert not any("all is well" in record.parts[0].text for record in reader.records.values())


def test_values_and_alarms_move_nothing_but_a_description_does(running: Ioc, protocol: str) -> None:
    reader = Reader(protocol, options={"names": NAMES, **address(protocol, running)})
    reader.sync()
    put(running, CUR=230.0, MODE=2, TRACE=[3.0, 2.0])
    assert reader.sync() == []
    put(running, CUR__DESC="Current of the ring")
    try:
        changes = reader.sync()
    finally:
        put(running, CUR__DESC='Stored "beam"')
    assert [change.record.fields["description"] for change in changes if isinstance(change, Upsert)] == [
        "Current of the ring"
    ]


def test_live_records_equal_those_of_the_database_file(running: Ioc, protocol: str, tmp_path: Path) -> None:
    (tmp_path / "ring.db").write_text(DB)
    files = Feed(name="pvs", source="epics", location=tmp_path, options={"macros": {"P": "T"}})
    context = SourceContext(ZoneInfo("UTC"), {}, Limits(), PATIENT)
    wanted = {c.record.id: c.record for c in open_source(files, context).changes(None) if isinstance(c, Upsert)}
    reader = Reader(protocol, location=tmp_path, options={"macros": {"P": "T"}, **address(protocol, running)})
    reader.sync()
    assert reader.records.keys() == wanted.keys() == {"T:CUR", "T:MODE", "T:SHUT"}
    for name, record in wanted.items():
        live = reader.records[name]
        assert live.fields == record.fields | {"data_type": live.fields["data_type"]}
        assert live.parts[0].text.startswith(record.parts[0].text)
        assert (live.title, live.links, live.access) == (record.title, record.links, record.access)


def test_a_pv_that_goes_away_keeps_its_record(tmp_path: Path) -> None:
    names = tmp_path / "pvs.txt"
    names.write_text("# of the ring\nT:CUR\n\nT:TURN\nT:SAID\n")
    readers = [Reader(protocol, location=names) for protocol in ("channel_access", "pvaccess")]
    with ioc() as whole:
        for reader in readers:
            reader.settings["options"] = address(reader.settings["form"], whole)
            reader.sync()
            assert reader.records.keys() == {"T:CUR", "T:TURN", "T:SAID"}
    for reader in readers:
        reader.network = IMPATIENT
        with pytest.raises(FeedError, match=r"none of 3 PVs answers; searched at 127.*no answer within 1 s"):
            reader.sync()
    with ioc("TURN") as part:
        for reader in readers:
            reader.settings["options"] = address(reader.settings["form"], part)
            reader.sync()
            assert [(f.unit, f.permanent) for f in reader.failures] == [("T:TURN", False)]
            assert "no answer" in reader.failures[0].reason
            assert "T:TURN" in reader.records
        # It is gone when nobody names it any more.
        names.write_text("T:CUR\nT:SAID\n")
        for reader in readers:
            reader.sync()
            assert reader.records.keys() == {"T:CUR", "T:SAID"}
            assert not reader.failures


def test_names_come_from_tables_and_lists(running: Ioc, tmp_path: Path) -> None:
    (tmp_path / "pvs.csv").write_text("name,group\nT:CUR,ring\n,ring\n")
    (tmp_path / "more.txt").write_text("T:MODE\nT:SAID and T:TURN\n")
    reader = Reader("channel_access", location=tmp_path, options=address("channel_access", running))
    reader.sync()
    assert reader.records.keys() == {"T:CUR", "T:MODE"}
    assert len(reader.failures) == 2
    assert all(failure.permanent for failure in reader.failures)
    (tmp_path / "pvs.csv").write_bytes(b"\x00\x01\x02")
    with pytest.raises(FeedError, match=r"pvs\.csv"):
        reader.sync()
    (tmp_path / "pvs.csv").unlink()
    (tmp_path / "more.txt").write_text("")
    with pytest.raises(FeedError, match="no PV is named"):
        reader.sync()


def test_a_server_without_record_fields_is_told_apart(
    running: Ioc, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("channel_access", "pvaccess"):
        monkeypatch.setattr(f"aps_rag_pipeline.sources.pvs.{module}.record_name", lambda name: f"{name}:nowhere")
    options = {"names": ["T:CUR"], **address(protocol, running)}
    reader = Reader(protocol, IMPATIENT, options=options)
    with pytest.raises(FeedError, match="fields: false"):
        reader.sync()
    reader.settings["options"] = options | {"fields": False}
    reader.sync()
    assert reader.records["T:CUR"].fields["hihi"] == 220
    assert "record_type" not in reader.records["T:CUR"].fields


def test_thousands_of_silent_pvs_cost_a_few_time_outs(
    running: Ioc, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"aps_rag_pipeline.sources.pvs.{protocol}._AT_ONCE", 4)
    monkeypatch.setattr(Patience, "_LEAST_S", 0.01)
    names = [f"T:NO{number}" for number in range(120)]  # in fours, a second each: half a minute
    started = time.monotonic()
    said = read_now(names, protocol, timeout_s=1, **address(protocol, running))
    assert list(said) == names
    assert time.monotonic() - started < 20
    assert said["T:NO0"].problem == "no answer within 1 s"
    assert said["T:NO23"].problem == "no answer within 0.03125 s"


def test_wrong_options_are_named(running: Ioc) -> None:
    reader = Reader("pvaccess", options={"names": ["T:CUR"], "adresses": ["x"]})
    with pytest.raises(FeedError, match="adresses"):
        reader.sync()


def test_what_pvs_say_now(running: Ioc, protocol: str) -> None:
    put(running, CUR=230.0, MODE=2, TRACE=[3.0, 2.0])
    names = [*NAMES, "T:LONG", "T:NOBODY"]
    said = read_now(names, protocol, timeout_s=1, **address(protocol, running))
    assert list(said) == names
    current = said["T:CUR"]
    assert (current.value, current.units, current.severity) == (230.0, "mA", "MAJOR")
    assert current.time is not None
    assert abs(datetime.now(UTC) - current.time) < timedelta(minutes=1)
    assert (said["T:MODE"].value, said["T:SHUT"].value, said["T:SAID"].value) == ("Study", "Open", "all is well")
    assert said["T:TURN"].value == 7
    assert said["T:TRACE"].value[:2] == [3.0, 2.0]
    if protocol == "channel_access":
        assert said["T:LONG"].value == "x" * 60
    assert said["T:NOBODY"].problem == "no answer within 1 s"
    assert read_now([], protocol) == {}
