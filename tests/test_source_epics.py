"""PV lists and EPICS databases as records: one a PV with all that rows and statements say of it, and its links."""

import csv
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aps_rag_pipeline.content.epicsdb import DbNote, DbProblem, DbRecord, expand, parse_db
from aps_rag_pipeline.records import Link, Record
from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Change, Complete, Failure, FeedError, Ignored, Source, SourceContext, Upsert
from aps_rag_pipeline.sources.epics import link_target, name_words


class NoBlobs:
    def put(self, data: bytes) -> str:
        raise AssertionError("a PV has no attachments")


def source(location: Path, **feed: Any) -> Source:
    context = SourceContext(ZoneInfo("America/Chicago"), NoBlobs(), Limits())
    return open_source(Feed(name="pvs", source="epics", location=location, **feed), context)


def read(folder: Path, text: str | bytes, name: str = "pvs.csv", **feed: Any) -> list[Change]:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return list(source(folder, **feed).changes(None))


def records(changes: list[Change]) -> dict[str, Record]:
    return {change.record.id: change.record for change in changes if isinstance(change, Upsert)}


def failures(changes: list[Change]) -> list[Failure]:
    return [change for change in changes if isinstance(change, Failure)]


# tables


def test_a_pv_in_several_rows_is_one_record_with_all_groups(tmp_path: Path) -> None:
    found = records(
        read(
            tmp_path,
            "Name,Description,Units,Group,ReadbackName,Logger\n"
            "S13B:Q2:CurrentAI,Quadrupole current,A,SR DC supplies,S13B Q2,a\n"
            "S-DCCT:CurrentM,Stored beam current,mA,Operations,S-DCCT:CurrentM,b\n"
            "S13B:Q2:CurrentAI,Quadrupole current,A,Extensive logger,,c\n",
        )
    )
    assert list(found) == ["S13B:Q2:CurrentAI", "S-DCCT:CurrentM"]
    quadrupole = found["S13B:Q2:CurrentAI"]
    assert quadrupole.title == "S13B:Q2:CurrentAI (Quadrupole current)"
    assert quadrupole.fields == {
        "description": "Quadrupole current",
        "readback": "S13B Q2",
        "units": "A",
        "groups": ["SR DC supplies", "Extensive logger"],
        "logger": ["a", "c"],
    }
    assert quadrupole.parts[0].text.split("\n") == [
        "S13B:Q2:CurrentAI: S13B Q2 Current AI",
        "Quadrupole current",
        "Readback name: S13B Q2 (S13B Q2)",
        "Units: A",
        "Groups: SR DC supplies; Extensive logger",
        "Logger: a, c",
    ]
    assert "Readback" not in found["S-DCCT:CurrentM"].parts[0].text


def test_labels_of_several_rows_admit_who_may_see_each(tmp_path: Path) -> None:
    text = 'name,group,access\nA:x,g1,"ops, rf"\nA:x,g2,rf\nB:x,g1,ops\nB:x,g2,\nC:x,g1,ops\n'
    found = records(read(tmp_path, text))
    assert [found[name].access for name in ("A:x", "B:x", "C:x")] == [("rf",), (), ("ops",)]


def test_rows_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    changes = read(tmp_path, "name,description\nA:x,ok\n,nameless\nB:x,one,two,three\nC:x,ok\n")
    assert list(records(changes)) == ["A:x", "C:x"]
    assert [(f.place, f.record_id) for f in failures(changes)] == [("pvs.csv:3", ""), ("pvs.csv:4", "B:x")]
    assert Complete("pvs.csv") in changes


def test_a_wrong_map_is_told_by_sync_and_check(tmp_path: Path) -> None:
    (failure,) = failures(read(tmp_path, "PV,Titel\nA:x,a\n", columns={"name": "Kanal"}))
    assert 'no column headed "Kanal" (for name); the headings are "PV", "Titel"' in failure.reason
    with pytest.raises(FeedError, match='no column headed "Kanal"'):
        source(tmp_path, columns={"name": "Kanal"}).check()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("S13B:Q2:CurrentAI", "S13B Q2 Current AI"),
        ("L:LR:pockelCell2TrigTimeM", "L LR pockel Cell 2 Trig Time M"),
        ("30idb:m34.RBV", "30idb m34 RBV"),
        ("TerminalVoltageReadBack", "Terminal Voltage Read Back"),
        ("S1#2-x_y", "S1 2 x y"),
    ],
)
def test_the_words_of_a_name(name: str, words: str) -> None:
    assert name_words(name) == words


def test_the_real_pv_list(shared: Path) -> None:
    changes = list(source(shared / "epics" / "aps_pv_list.csv").changes(None))
    found = records(changes)
    assert len(found) == 62_490
    assert not failures(changes)
    groups: dict[str, dict[str, None]] = {}
    with (shared / "epics" / "aps_pv_list.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            groups.setdefault(row["ControlName"].strip(), {})[row["GroupName"].strip()] = None
    assert {name: record.fields["groups"] for name, record in found.items()} == {n: list(g) for n, g in groups.items()}
    tunnel = found["G:SR02:TunnelTempAi"]
    assert tunnel.fields["groups"] == ["ID Source Position and Tunnel Temperature", "Process Water/Air Temps"]
    assert tunnel.fields["readback"] == "G:PW:Sector1/2ZoneTemp"
    assert "Tunnel Temp" in tunnel.parts[0].text
    assert "Process Water/Air Temps" in tunnel.parts[0].text


def test_the_real_channel_lists(shared: Path) -> None:
    tier = (
        shared / "epics/osprey_channels/src/osprey/templates/apps/control_assistant/data/channel_databases/tiers/tier3"
    )
    changes = list(source(tier, include=("*.json",)).changes(None))
    found = records(changes)
    assert len(found) == 2_908
    channel = found["BR:DIAG:BPM:01:POSITION:X"]
    assert channel.title == "BR:DIAG:BPM:01:POSITION:X (Booster ring beam position monitor 01 position horizontal)"
    assert channel.fields["readback"] == "BoosterRing_BPM_01_Position_X"
    assert {f.unit for f in failures(changes)} == {"hierarchical.json", "middle_layer.json"}


def test_archiver_files_end_as_named_failures_or_records(shared: Path) -> None:
    changes = list(source(shared / "epics" / "archiver_samples", include=("*.pb", "*.json", "*.xml")).changes(None))
    told = {change.unit for change in changes if isinstance(change, Complete)} | {f.unit for f in failures(changes)}
    assert told == {
        "getDataAtTime.json",
        "getPVStatus.json",
        "getPVStatus_aps_style.json",
        "lrm01_raw.pb",
        "scripts/sample_appliances.xml",
        "sig1-wo-adel.pb",
        "sig2-w-adel.pb",
    }
    assert all(failure.reason and failure.remedy for failure in failures(changes))


# databases

DATABASE = r"""
# A comment with a "quote and a record(ai, "not:me")
include "base.dbd"
menu(menuScan) { choice(menuScanPassive, "Passive") }
breaktable(typeK) { 0.000000 0.000000, 365.023224 67.000000 }
record(ai, "$(P)Temp$(N=1)") {
  field(DESC, "Cavity \"A\" # inlet")   # a comment behind it
  field(EGU, "degC") field(HOPR, "80") field(PREC, 1) field(SCAN, "1 second")
  field(INP, "@asyn(PORT,0)TEMP")
  field(FLNK, "$(P)Calc1.PROC PP MS")
  info(autosaveFields, "HOPR LOPR")
  alias("$(P)InletTemp")
}
grecord(calc, "$(P)Calc1") {
  field(INPA, "$(P)Temp1.VAL NPP NMS")
  field(INPB, "0.01")
  field(INPC, {pva:{pv:"S:Other", field:"a{b"}})
  field(INPD, "$(P)Calc1.VAL")
  field(CALC, "A<100?A+1:0")
}
record("*", "$(P)Calc1") { field(EGU, "K") }
record(bo, "$(P)Switch")
alias("$(P)Switch", "$(P)Valve")
"""


def test_a_database(tmp_path: Path) -> None:
    changes = read(tmp_path, DATABASE, "ioc.db", options={"macros": {"P": "S35:"}})
    found = records(changes)
    assert not failures(changes)
    assert list(found) == ["S35:Temp1", "S35:Calc1", "S35:Switch"]
    temperature = found["S35:Temp1"]
    assert temperature.title == 'S35:Temp1 (Cavity "A" # inlet)'
    assert temperature.fields == {
        "description": 'Cavity "A" # inlet',
        "units": "degC",
        "record_type": "ai",
        "scan": "1 second",
        "prec": 1,
        "hopr": 80,
        "inp": "@asyn(PORT,0)TEMP",
        "flnk": "S35:Calc1.PROC PP MS",
        "info_autosavefields": "HOPR LOPR",
        "aliases": "S35:InletTemp",
    }
    assert temperature.links == (Link("process_variable", "S35:Calc1", "FLNK"),)
    calc = found["S35:Calc1"]
    assert calc.fields["units"] == "K"
    assert set(calc.links) == {
        Link("process_variable", "S35:Temp1", "INPA"),
        Link("process_variable", "S:Other", "INPC"),
    }
    assert found["S35:Switch"].fields["aliases"] == "S35:Valve"
    assert Ignored("ioc.db:3", "include base.dbd: files are read for themselves") in changes
    assert [change.place for change in changes if isinstance(change, Upsert)] == ["ioc.db:6", "ioc.db:14", "ioc.db:22"]


def test_macros_without_a_value_stay_as_written(tmp_path: Path) -> None:
    found = records(read(tmp_path, DATABASE, "ioc.template"))
    assert list(found) == ["$(P)Temp1", "$(P)Calc1", "$(P)Switch"]
    assert found["$(P)Temp1"].fields["macros"] == ["P"]
    assert found["$(P)Temp1"].links == (Link("process_variable", "$(P)Calc1", "FLNK"),)


def test_malformed_statements_cost_themselves(tmp_path: Path) -> None:
    changes = read(
        tmp_path,
        'record(ai, "A:x") { field(DESC, "ok") }\nrecord(ai, "B:x") {\n  field(DESC, "never closed)\n}\n'
        'record(ai, "C:x") { feild(DESC, "x") }\nrecord(ao, "A:x") { }\nalias("Z:z", "Y:y")\njunk\n'
        'record(ai, "D:x") { field(DESC, "ok") }\nrecord(ai, "E:x") { field(DESC, "cut',
        "ioc.db",
    )
    assert list(records(changes)) == ["A:x", "D:x"]
    assert [(f.place, f.record_id) for f in failures(changes)] == [
        ("ioc.db:3", "B:x"),
        ("ioc.db:5", "C:x"),
        ("ioc.db:6", ""),
        ("ioc.db:7", ""),
        ("ioc.db:8", ""),
        ("ioc.db:10", "E:x"),
    ]
    reasons = [f.reason for f in failures(changes)]
    assert "quote that is not closed" in reasons[0]
    assert "'feild' inside the record C:x" in reasons[1]
    assert "of type ai at line 1" in reasons[2]


def test_what_is_no_database_says_so(tmp_path: Path) -> None:
    (binary,) = failures(read(tmp_path, b"SQLite format 3\x00" + bytes(200), "x.db"))
    assert "binary" in binary.reason
    changes = read(tmp_path, "# nothing but a comment\n", "x.db")
    assert Ignored("x.db", "a database file without a record") in changes
    (noise,) = [f for f in failures(read(tmp_path, "record(\n" * 5_000, "x.db")) if f.item == f.unit]
    assert "more than 1000 statements" in noise.reason


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("S:a.VAL NPP NMS", "S:a"),
        ("S:a CP", "S:a"),
        ("0.01", ""),
        ("-1e3", ""),
        ("@asyn(PORT)", ""),
        ("#C0 S1", ""),
        ("", ""),
        ('{"pva":{"pv":"S:b.DESC"}}', "S:b"),
        ("{const:5}", ""),
        ("$(P)x.PROC", "$(P)x"),
    ],
)
def test_link_targets(value: str, target: str) -> None:
    assert link_target(value) == target


def test_macro_expansion() -> None:
    macros = {"A": "1", "B": "$(A)", "N": "A"}
    texts = ("$(A)", "${A}x", "$(C)", "$(C=d)", "$(C=$(A))", "$($(N))", "$(B)", "$(A=9)", "$(E=)", "a$b")
    assert [expand(text, macros) for text in texts] == ["1", "1x", "$(C)", "d", "1", "1", "1", "1", "", "a$b"]
    assert expand("$(L)", {"L": "$(L)$(L)"}).startswith("$(L)")  # ends, though it never resolves


_names = st.from_regex(r"[A-Z][A-Za-z0-9_\-]{0,6}(:[A-Za-z0-9_\-]{1,6}){1,3}", fullmatch=True)
_texts = st.text(st.characters(categories=("L", "N", "P", "S", "Zs"), exclude_characters="$"), max_size=25).map(
    str.strip
)


@given(
    st.dictionaries(_names, st.dictionaries(st.sampled_from(["DESC", "EGU", "CALC", "FLNK"]), _texts), max_size=5),
    st.sampled_from(["record(ai, ", "grecord( ai ,", 'record("ai",']),
    st.sampled_from(["\n", "  # remark {\n", " "]),
)
def test_database_round_trip(written: dict[str, dict[str, str]], opening: str, gap: str) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = "".join(
        f"{opening}{quoted(name)}){gap}{{{gap}"
        + "".join(f"field({field}, {quoted(value)}){gap}" for field, value in fields.items())
        + f"}}{gap}"
        for name, fields in written.items()
    )
    read_back = list(parse_db(text))
    assert all(isinstance(statement, DbRecord) for statement in read_back)
    assert {r.name: r.fields for r in read_back if isinstance(r, DbRecord)} == written


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["record(", "field(", ")", "{", "}", '"', "alias(", "#", ", ", "x", "\n", "$("])).map(
        "".join
    )
)
def test_any_text_is_read_to_its_end(text: str) -> None:
    for statement in parse_db(text):
        assert isinstance(statement, DbProblem | DbNote | DbRecord) or statement.record is not None


def test_the_real_databases(shared: Path) -> None:
    changes = list(source(shared / "epics" / "archiver_samples", options={"macros": {"P": ""}}).changes(None))
    found = records(changes)
    assert not failures(changes)
    assert len(found) > 10_000
    assert {change.unit for change in changes if isinstance(change, Complete)} == {"UnitTestPVs.db", "basic.db"}
    sine = found["UnitTestNoNamingConvention:sine"]
    assert sine.fields["aliases"] == "UnitTestNoNamingConvention:sinealias"
    assert (sine.fields["units"], sine.fields["description"]) == ("apples", "Something:with:a:colon")
    assert found["--ArchUnitTest:sine:calc"].links == (Link("process_variable", "--ArchUnitTest:sine", "OUT"),)
    (screen,) = (source(shared / "displays", include=("*.db",)).inventory(),)
    assert list(screen) == ["$(P)led:test:discrete", "$(P)led:test:binary_live", "$(P)sp:test:compact:setpoint"]
