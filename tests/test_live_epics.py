"""PVs of an Archiver Appliance: what it leaves out, how it prints, and what counts as gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.wrappers import Response

from aps_rag_pipeline.demo.live.archiver import Server
from aps_rag_pipeline.demo.live.archiver_store import Archived, Store
from aps_rag_pipeline.demo.write import write
from aps_rag_pipeline.records import Link, Record
from aps_rag_pipeline.settings import Credentials, Feed, Limits, Network, SecretPlace, Settings
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Complete, Cursor, Failure, FeedError, Ignored, SourceContext, Upsert
from aps_rag_pipeline.sources.live import Memory
from aps_rag_pipeline.sources.net.http import Http
from aps_rag_pipeline.sources.pvs.appliance import Appliance, appliance_time, mended_json
from tests.serving import Fault, FaultyServer, serving

QUICK = Network(timeout_s=0.3, deadline_s=2, attempts=3, backoff_s=0.001)
CHICAGO = ZoneInfo("America/Chicago")


class Reader:
    """A feed that is synced again and again, as the pipeline does it."""

    def __init__(self, server: FaultyServer, store: Store, **feed: Any) -> None:
        self.server, self.store = server, store
        self.settings = {"name": "pvs", "source": "epics", "form": "archiver", "url": server.url, **feed}
        self.network = QUICK
        self.cursor: Any = None
        self.records: dict[str, Record] = {}
        self.failures: list[Failure] = []

    def open(self) -> Any:
        return open_source(Feed(**self.settings), SourceContext(CHICAGO, {}, Limits(), self.network))

    def sync(self, retry: frozenset[str] = frozenset()) -> list[Any]:
        self.server.forget()
        changes = list(self.open().changes(self.cursor, retry))
        assert isinstance(changes[-1], Cursor)
        self.cursor = json.loads(json.dumps(changes[-1].value))
        given: dict[str, list[Record]] = {}
        self.failures = [change for change in changes if isinstance(change, Failure)]
        for change in changes:
            if isinstance(change, Upsert):
                given.setdefault(change.unit, []).append(change.record)
            elif isinstance(change, Complete) and not given.get(change.unit):
                self.records.pop(change.unit, None)
        self.records |= {record.id: record for records in given.values() for record in records}
        return changes[:-1]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def reader(store: Store) -> Iterator[Reader]:
    with serving(Server(store)) as server:
        yield Reader(server, store)


def pv(name: str, **more: Any) -> Archived:
    fields = {"EGU": "A", "RTYP": "ai", **more.pop("fields", {})}
    return Archived(name, fields, **more)


def test_more_than_the_first_five_hundred_are_read_and_a_second_sync_changes_nothing(reader: Reader) -> None:
    for number in range(700):
        reader.store.put(pv(f"S{number:03d}:CurrentAI"))
    reader.sync()
    assert len(reader.records) == 700
    assert reader.sync() == []
    assert len(reader.server.requests) == 4
    assert not reader.server.asked("getPVTypeInfo|getMetadata")
    assert reader.open().check().units == 700


def test_a_record_says_what_the_pv_is_and_how_it_is_archived(reader: Reader) -> None:
    reader.settings |= {"options": {"metadata": True}, "url_template": "https://archiver.example/?pv={id}"}
    fields = {
        **{
            "DESC": 'Beam "current"',
            "EGU": "mA",
            "PREC": "3",
            "HOPR": "250",
            "LOPR": "0",
            "HIHI": "220",
            "HIGH": "210",
        },
        **{"HHSV": "MAJOR", "INP": "S:Raw CP", "VAL": "101.9", "SEVR": "MINOR"},
    }
    reader.store.put(pv("S:DCCT", fields=fields, paused=True, sampling_method="SCAN", controlling="S:Mode"))
    reader.sync()
    record = reader.records["S:DCCT"]
    assert record.title == 'S:DCCT (Beam "current")'
    assert record.fields == {
        "description": 'Beam "current"',
        "units": "mA",
        "record_type": "ai",
        **{"prec": 3, "hopr": 250, "lopr": 0, "hihi": 220, "high": 210, "hhsv": "MAJOR", "inp": "S:Raw CP"},
        "data_type": "double",
        "archived_since": "2019-03-04T17:20:05.123000+00:00",
        "archiving": "paused",
        "sampling_method": "scan",
        "sampling_period_s": 1.0,
        "archiving_policy": "Default",
        "controlling_pv": "S:Mode",
    }
    assert "HIHI: 220" in record.parts[0].text
    assert "101.9" not in record.parts[0].text
    assert set(record.links) == {
        Link("process_variable", "S:Raw", "INP"),
        Link("process_variable", "S:Mode", "controls its archiving"),
    }
    assert record.modified_at == datetime(2019, 3, 4, 17, 20, 5, 123000, UTC)
    assert record.url == "https://archiver.example/?pv=S:DCCT"


def test_adding_editing_reverting_and_deleting(reader: Reader) -> None:
    for name in ("A:1", "A:2", "A:3"):
        reader.store.put(pv(name))
    reader.sync()
    before = reader.records["A:2"]
    # A script writes the type info and leaves the modification time as it was.
    reader.store.pvs["A:2"].fields["EGU"] = "mA"
    del reader.store.pvs["A:3"]
    reader.store.put(pv("A:4"))
    changes = reader.sync()
    assert [change.record.id for change in changes if isinstance(change, Upsert)] == ["A:2", "A:4"]
    assert reader.records.keys() == {"A:1", "A:2", "A:4"}
    reader.store.pvs["A:2"].fields["EGU"] = "A"
    reader.sync()
    assert reader.records["A:2"] == before
    # A name that is used again is another PV.
    reader.store.put(pv("A:3", fields={"EGU": "psi"}))
    reader.sync()
    assert reader.records["A:3"].fields["units"] == "psi"


def test_what_moves_all_the_time_moves_no_token(reader: Reader) -> None:
    reader.store.put(pv("A:1", fields={"VAL": "1"}))
    reader.settings["options"] = {"metadata": True}
    reader.sync()
    reader.store.pvs["A:1"].fields["VAL"] = "2"
    assert reader.sync() == []
    reader.store.pvs["A:1"].fields["DESC"] = "edited at the IOC"
    assert len(reader.sync()) == 2
    assert reader.records["A:1"].fields["description"] == "edited at the IOC"


def test_an_alias_belongs_to_its_pv(reader: Reader) -> None:
    reader.store.put(pv("A:real"))
    reader.store.aliases = {"A:friendly": "A:real"}
    reader.sync()
    assert reader.records.keys() == {"A:real"}
    assert reader.records["A:real"].fields["aliases"] == "A:friendly"
    reader.store.aliases["A:other"] = "A:real"
    reader.sync()
    assert reader.records["A:real"].fields["aliases"] == ["A:friendly", "A:other"]
    # Renamed: the old name stays as an alias of the new one.
    reader.store.put(pv("A:new"))
    del reader.store.pvs["A:real"]
    reader.store.aliases = {"A:real": "A:new"}
    reader.sync()
    assert reader.records.keys() == {"A:new"}


def test_aliases_are_told_from_pvs_where_no_list_of_them_is_offered(reader: Reader) -> None:
    reader.store.put(pv("A:real"))
    reader.store.aliases = {"A:friendly": "A:real"}
    reader.server.fail("status", status=404, path="getAllAliases|getAppliancesInCluster", times=-1)
    changes = reader.sync()
    assert [change.reason for change in changes if isinstance(change, Ignored)] == ["an alias of A:real"]
    assert reader.records.keys() == {"A:real"}


def test_pvs_of_a_member_that_is_down_are_kept(reader: Reader) -> None:
    reader.store.members = ["appliance0", "appliance1"]
    for number in range(4):
        reader.store.put(pv(f"A:{number}", appliance=f"appliance{number % 2}"))
    reader.sync()
    assert len(reader.records) == 4
    reader.store.down = {"appliance1"}
    reader.sync()
    assert len(reader.records) == 4
    assert {failure.unit for failure in reader.failures} == {"A:1", "A:3"}
    assert all("appliance1" in failure.reason and not failure.permanent for failure in reader.failures)
    # Nor is one gone that the others no longer know of.
    down = reader.store.pvs.pop("A:3")
    reader.sync()
    assert len(reader.records) == 4
    assert "options.retired" in {f.unit: f.reason for f in reader.failures}["A:3"]
    reader.store.down, reader.store.pvs["A:3"] = set(), down
    reader.sync(retry=frozenset({"A:1", "A:3"}))
    assert not reader.failures
    assert reader.sync() == []


def test_a_retired_member_takes_its_pvs_along(reader: Reader) -> None:
    reader.store.members = ["appliance0", "appliance1"]
    reader.store.put(pv("A:0"))
    reader.store.put(pv("A:1", appliance="appliance1"))
    reader.sync()
    reader.store.members.pop()
    del reader.store.pvs["A:1"]
    reader.sync()
    assert reader.records.keys() == {"A:0", "A:1"}
    reader.settings["options"] = {"retired": ["appliance1"]}
    reader.sync()
    assert reader.records.keys() == {"A:0"}


def test_an_export_without_a_large_part_of_the_pvs_is_an_outage(reader: Reader) -> None:
    reader.store.members = ["appliance0", "appliance1"]
    for number in range(300):
        reader.store.put(pv(f"A:{number}", appliance=f"appliance{number % 2}"))
    reader.sync()
    reader.store.down = {"appliance1"}
    with pytest.raises(FeedError, match=r"leaves out 150 of 300.*silent: appliance1"):
        reader.sync()


def test_a_pv_that_is_requested_anew_is_not_gone(reader: Reader) -> None:
    for name in ("A:1", "A:2"):
        reader.store.put(pv(name))
    reader.sync()
    del reader.store.pvs["A:1"]
    reader.store.requested = {"A:1"}
    reader.sync()
    assert "Initial sampling" in reader.failures[0].reason
    assert reader.records.keys() == {"A:1", "A:2"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "status", "status": 500}, "status 500"),
        ({"kind": "torn"}, "cut off"),
        ({"kind": "html"}, "Sign in"),
        ({"kind": "body", "body": b'{"status": "error"}'}, "not a list"),
        ({"kind": "hang"}, "no answer"),
    ],
)
@pytest.mark.parametrize("path", ["getAllPVs", "exportConfig"])
def test_an_outage_is_no_emptiness(reader: Reader, fault: dict[str, Any], said: str, path: str) -> None:
    reader.store.put(pv("A:1"))
    reader.sync()
    reader.server.fail(path=path, times=-1, **fault)
    with pytest.raises(FeedError, match=said):
        reader.sync()


def test_nothing_listed_where_there_was_something_is_an_outage(reader: Reader) -> None:
    reader.store.put(pv("A:1"))
    reader.sync()
    reader.store.pvs.clear()
    with pytest.raises(FeedError, match="nothing is listed"):
        reader.sync()


def test_an_appliance_that_starts_up_answers_later(reader: Reader) -> None:
    reader.store.put(pv("A:1"))
    reader.server.fail("status", times=2, status=500)
    reader.sync()
    assert reader.records.keys() == {"A:1"}
    reader.store.starting = True
    with pytest.raises(FeedError, match="status 500"):
        reader.sync()


def test_a_pv_whose_metadata_fails_costs_itself(reader: Reader) -> None:
    reader.settings["options"] = {"metadata": True}
    for name in ("A:1", "A:2"):
        reader.store.put(pv(name, fields={"DESC": "here"}))
    reader.sync()
    reader.server.fail("status", path="getMetadata.*A%3A2", times=-1)
    reader.sync()
    assert [failure.unit for failure in reader.failures] == ["A:2"]
    assert reader.records["A:2"].fields["description"] == "here"
    reader.server.faults.clear()
    reader.sync(retry=frozenset({"A:2"}))
    assert not reader.failures
    assert reader.sync() == []


def test_metadata_that_hangs_holds_nothing_up_for_long_and_takes_nothing_away(reader: Reader) -> None:
    reader.settings["options"] = {"metadata": True}
    for number in range(120):
        reader.store.put(pv(f"A:{number:03d}", fields={"DESC": "here"}))
    reader.sync()
    reader.network = Network(timeout_s=0.3, deadline_s=0.3, attempts=1)
    reader.server.fail("hang", path="getMetadata", times=-1)
    assert not [change for change in reader.sync() if isinstance(change, Upsert | Complete)]
    assert len(reader.server.asked("getMetadata")) < 30
    assert {failure.unit for failure in reader.failures} == reader.records.keys()
    assert sum("was not asked for" in failure.reason for failure in reader.failures) > 90
    # Those that did not come wait behind the others the next time.
    slow = reader.cursor["notes"]["slow"]
    path = f"getMetadata.*A%3A({'|'.join(name[2:] for name in slow)})"
    reader.server.faults[:] = [Fault("hang", times=-1, path=path)]
    for each in reader.store.pvs.values():
        each.fields["DESC"] = "there"
    reader.sync()
    fresh = {name for name, record in reader.records.items() if record.fields["description"] == "there"}
    assert len(fresh) > 60
    assert fresh.isdisjoint(slow)
    reader.server.faults.clear()
    reader.network = QUICK
    reader.sync()
    assert not reader.failures
    assert reader.sync() == []


def test_names_are_chosen_by_patterns(reader: Reader) -> None:
    for name in ("A:1", "B:1", "B:2"):
        reader.store.put(pv(name))
    reader.settings |= {"include": ("B:*",), "exclude": ("*:2",)}
    reader.sync()
    assert reader.records.keys() == {"B:1"}


def test_configuration_errors_say_what_to_do(reader: Reader) -> None:
    for options, said in (({"listing": "al"}, "listing"), ({"listing": "recent", "metadata": True}, "export")):
        reader.settings["options"] = options
        with pytest.raises(FeedError, match=said):
            reader.sync()
    reader.settings |= {"options": {}, "url": ""}
    with pytest.raises(FeedError, match="url"):
        reader.sync()


def test_a_feed_without_location_has_none(tmp_path: Path) -> None:
    feeds = [
        {"name": "ring", "source": "epics", "form": "channel_access", "options": {"names": ["A:1"]}},
        {"name": "list", "source": "epics", "form": "channel_access", "location": "pvs.txt"},
    ]
    bare, listed = Settings.build({"feeds": feeds}, tmp_path / "facility.yaml").feeds
    assert "location" not in bare.model_fields_set
    assert listed.location == tmp_path / "pvs.txt"
    assert (bare.place, listed.place) == ("feed ring", str(tmp_path / "pvs.txt"))


def test_what_is_no_pv_is_passed_over(reader: Reader) -> None:
    reader.store.put(pv("A:1"))
    reader.store.put(pv("A:2"))
    info = reader.open().scan(Memory()).appliance.configuration()[0]
    reader.server.fail("body", path="getAllPVs", body=b'["A:1", null, "", 7, "A:1", "A:2"]')
    reader.server.fail("body", path="exportConfig", body=json.dumps([None, info, info, {"pvName": ""}]).encode())
    reader.server.fail("body", path="getPVStatus", body=b"[null, 5]", times=-1)
    reader.server.fail("status", path="getPVTypeInfo", status=404)
    reader.sync()
    assert len(reader.records) == 1
    assert "nothing is said of it" in reader.failures[0].reason


@pytest.mark.parametrize("odd", [{}, [], "many"])
def test_a_type_info_that_is_odd_costs_its_pv_alone(reader: Reader, odd: Any) -> None:
    for name in ("A:1", "A:2", "A:3"):
        reader.store.put(pv(name))
    reader.sync()
    before = reader.records["A:2"]
    twist(reader, "A:2", elementCount=odd)
    reader.store.pvs["A:3"].fields["EGU"] = "mA"
    reader.sync()
    assert [(failure.unit, failure.permanent) for failure in reader.failures] == [("A:2", False)]
    assert reader.records["A:2"] == before
    assert reader.records["A:3"].fields["units"] == "mA"
    reader.server.app = Server(reader.store)
    reader.sync()
    assert not reader.failures
    assert reader.sync() == []


@pytest.mark.parametrize("key", ["units", "DBRType", "policyName", "pvName", "applianceIdentity", "elementCount"])
def test_half_a_letter_costs_nothing_but_itself(reader: Reader, key: str) -> None:
    for name in ("A:1", "A:2"):
        reader.store.put(pv(name))
    twist(reader, "A:2", **{key: "3 \ud83d"})
    changes = reader.sync()
    assert "A:1" in reader.records
    for change in changes:
        str(change).encode("utf-8")
    if key == "units":
        assert reader.records["A:2"].fields["units"] == "3 \ufffd"


def twist(reader: Reader, name: str, **more: Any) -> None:
    """Let the export say something else of a PV."""
    whole = Server(reader.store)

    def app(environ: Any, start_response: Any) -> Any:
        reply = Response.from_app(whole, environ)
        if environ["PATH_INFO"].endswith("exportConfig"):
            infos = json.loads(reply.get_data())
            next(info for info in infos if info["pvName"] == name).update(more)
            reply.set_data(json.dumps(infos))
        return reply(environ, start_response)

    reader.server.app = app


def test_a_pv_that_goes_while_the_listing_is_made_is_gone(reader: Reader) -> None:
    for name in ("A:1", "A:2"):
        reader.store.put(pv(name))
    reader.sync()
    names = json.dumps(["A:1", "A:2"]).encode()
    del reader.store.pvs["A:2"]
    reader.server.fail("body", path="getAllPVs", body=names)
    reader.sync()
    assert reader.records.keys() == {"A:1"}
    assert not reader.failures
    # One that is added meanwhile is in the export alone.
    reader.store.put(pv("A:3"))
    reader.server.fail("body", path="getAllPVs", body=b'["A:1"]')
    reader.sync()
    assert reader.records.keys() == {"A:1", "A:3"}


def test_the_listing_in_another_order_twice_over_or_with_another_clock_moves_nothing(reader: Reader) -> None:
    for number in range(5):
        reader.store.put(pv(f"A:{number}"))
    reader.sync()
    infos = reader.open().scan(Memory()).appliance.configuration()
    reader.server.fail("body", path="exportConfig", body=json.dumps([*reversed(infos), *infos]).encode())
    assert reader.sync() == []
    reader.store.zone_style = "offset"
    assert reader.sync() == []


def test_credentials_are_sent(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARCHIVER_PASSWORD", "sesame")
    reader.store.put(pv("A:1"))
    reader.settings["credentials"] = Credentials(user="reader", password=SecretPlace(env="ARCHIVER_PASSWORD"))
    reader.sync()
    assert reader.server.headers[-1]["AUTHORIZATION"].startswith("Basic ")


@pytest.mark.parametrize("more", [{"user": "reader"}, {"password": SecretPlace(env="ARCHIVER_PASSWORD")}])
def test_one_way_of_signing_in_is_told(reader: Reader, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> None:
    monkeypatch.setenv("ARCHIVER_PASSWORD", "sesame")
    monkeypatch.setenv("ARCHIVER_TOKEN", "t0ken")
    reader.settings["credentials"] = Credentials(token=SecretPlace(env="ARCHIVER_TOKEN"), **more)
    with pytest.raises(FeedError, match=r"credentials name a `token` and a `user` or `password`.*leave out the other"):
        reader.sync()
    assert reader.server.requests == []


@pytest.mark.parametrize("address", ["", "archiver:17665", "ftp://archiver:17665"])
def test_the_address_of_an_appliance_is_one_of_the_web(reader: Reader, address: str) -> None:
    reader.settings["url"] = address
    with pytest.raises(FeedError, match=r"`url` is missing or not one of the web: .*http://archiver:17665"):
        reader.sync()


def test_the_address_of_retrieval_is_one_of_the_web(reader: Reader) -> None:
    reader.settings["options"] = {"retrieval_url": "archiver:17668/retrieval"}
    with pytest.raises(FeedError, match=r"options\.retrieval_url: .*http"):
        reader.sync()
    assert reader.server.requests == []


# the reports of what was added and modified


@pytest.fixture
def reporting(reader: Reader) -> Reader:
    reader.settings["options"] = {"listing": "recent"}
    return reader


def ago(**more: float) -> datetime:
    return datetime.now(UTC) - timedelta(**more)


@pytest.mark.parametrize("style", ["name", "offset"])
def test_reports_narrow_what_is_read(reporting: Reader, style: str) -> None:
    reporting.store.zone_style = style
    for number in range(150):
        reporting.store.put(pv(f"A:{number}", created=ago(days=900 - number), modified=ago(days=200, hours=number)))
    reporting.sync()
    assert len(reporting.records) == 150
    assert reporting.sync() == []
    assert not reporting.server.asked("getPVTypeInfo")
    changed = reporting.store.pvs["A:7"]
    changed.paused, changed.modified = True, ago(minutes=5)
    del reporting.store.pvs["A:8"]
    reporting.store.put(pv("A:new", created=ago(minutes=9), modified=ago(minutes=9)))
    reporting.sync()
    assert len(reporting.server.asked("getPVTypeInfo")) == 3
    assert reporting.records["A:7"].fields["archiving"] == "paused"
    assert "A:new" in reporting.records
    assert "A:8" not in reporting.records


def test_a_second_change_in_the_same_second_is_seen(reporting: Reader) -> None:
    moment = datetime.now(UTC).replace(microsecond=0)
    reporting.store.put(pv("A:1", created=ago(days=3), modified=moment))
    reporting.sync()
    assert reporting.open().fingerprint() is None
    reporting.store.pvs["A:1"].fields["EGU"] = "mA"
    reporting.sync()
    assert reporting.records["A:1"].fields["units"] == "mA"


# its dates and its JSON


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Oct/07/2024 18:38:10 CDT", datetime(2024, 10, 7, 23, 38, 10, tzinfo=UTC)),
        ("Oct/12/2015 13:54:53 -07:00", datetime(2015, 10, 12, 20, 54, 53, tzinfo=UTC)),
        ("Nov/03/2024 01:30:00 CDT", datetime(2024, 11, 3, 6, 30, tzinfo=UTC)),
        ("Nov/03/2024 01:30:00 CST", datetime(2024, 11, 3, 7, 30, tzinfo=UTC)),
        ("Jan/02/2024 10:00:00 JST", datetime(2024, 1, 2, 1, 0, tzinfo=UTC)),
        ("Jan/02/2024 10:00:00 XYZ", datetime(2024, 1, 2, 16, 0, tzinfo=UTC)),
        ("2025-01-23T12:04:58.973Z", datetime(2025, 1, 23, 12, 4, 58, 973000, UTC)),
        ("Never", None),
        ("Feb/30/2024 10:00:00 UTC", None),
    ],
)
def test_dates(text: str, wanted: datetime | None) -> None:
    assert appliance_time(text, CHICAGO) == wanted


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\\"), max_size=12)


@given(TEXTS.filter(lambda text: not any(sign in text for sign in ('":', '" :', '",', '"}', '" }'))))
def test_quotes_in_metadata_are_mended(unit: str) -> None:
    text = '[ \n{ "meta": { "name": "A:1" , "EGU": "' + unit + '" , "PREC": "3" },\n"data": [ { "val": NaN } ] }\n ]'
    found = mended_json(text)
    assert found[0]["meta"] == {"name": "A:1", "EGU": unit, "PREC": "3"}
    assert found[0]["data"][0]["val"] != found[0]["data"][0]["val"]


@given(st.integers(1, 200))
def test_what_is_cut_off_is_not_mended(size: int) -> None:
    text = '[{"meta": {"name": "A", "EGU": "5" pipe"}, "data": [{"secs": 1, "val": -Infinity}, {"secs": 2, "val": 1}]}]'
    with pytest.raises(ValueError):
        mended_json(text[: -min(size, len(text))])
    with pytest.raises(ValueError):
        mended_json(text.replace("-Infinity", "minus"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_sound_json_stays_what_it_is(value: Any) -> None:
    assert mended_json(json.dumps(value)) == value


def test_addresses_are_found_from_what_people_write() -> None:
    beside = "http://a:17665/mgmt/bpl", "http://a:17668/retrieval"
    with Http(QUICK) as http:
        for path in ("", "/", "/mgmt", "/mgmt/bpl/", "/mgmt/ui/index.html"):
            found = Appliance(http, f"http://a:17665{path}")
            assert (found.mgmt, found.retrieval) == beside
        assert Appliance(http, "https://archiver.example").retrieval == "https://archiver.example/retrieval"


# the demo


def test_the_demo_served_live_equals_its_files(tmp_path: Path) -> None:
    write(tmp_path, seed=7, records=300)
    folder = tmp_path / "feeds" / "epics"
    files = open_source(Feed(name="pvs", source="epics", location=folder), SourceContext(CHICAGO, {}, Limits()))
    wanted = {change.record.id: change.record for change in files.changes(None) if isinstance(change, Upsert)}
    with serving(Server.of_folder(folder)) as server:
        reader = Reader(server, Store(), options={"metadata": True})
        reader.sync()
        assert reader.records.keys() == wanted.keys()
        for name, record in wanted.items():
            live = reader.records[name]
            # An archiver knows neither the groups of loggers nor friendly names.
            carried = {k: v for k, v in record.fields.items() if k not in ("groups", "readback", "info_comment")}
            assert carried.items() <= live.fields.items()
            assert (live.title, live.links, live.access) == (record.title, record.links, record.access)
        assert reader.sync() == []
        path = next(folder.rglob("*.db"))
        text = path.read_text()
        path.write_text(text.replace('field(DESC, "', 'field(DESC, "New ', 1))
        reader.sync()
        assert sum(record.title != wanted[name].title for name, record in reader.records.items()) == 1
