"""Text of pictures in their records: at its place, cited, counted, and its identifiers against the known names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from aps_rag_pipeline.content import ocr
from aps_rag_pipeline.content.ocr import OcrFailure, OcrJob, OcrResult
from aps_rag_pipeline.content.ocr.repair import KnownNames, spaced
from aps_rag_pipeline.sync.text import known_names
from tests.small_facility import Facility

READ = "trip of $14B:P3:SumAl at 12:30\nLTS:H9:CurrentA0 12.5 A"


@pytest.fixture
def facility(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Facility:
    """A log whose second entry shows a picture; what is read from pictures is given, so that its slips are known."""

    def recognise(jobs: Iterable[OcrJob], *_: object) -> Iterator[tuple[OcrJob, OcrResult | OcrFailure]]:
        for job in jobs:
            wide = Image.open(job.path).width
            texts = {30: READ, 31: ""}
            yield job, OcrResult(texts[wide], 88.0, len(texts[wide].split()), "eye 1")

    monkeypatch.setattr(ocr, "engine_version", lambda: "eye 1")
    monkeypatch.setattr(ocr, "recognise", recognise)
    feeds = [
        {"name": "logbook", "source": "bely", "location": "log"},
        {"name": "requests", "source": "work_requests", "location": "requests"},
        {"name": "pvs", "source": "epics", "location": "pvs"},
    ]
    made = Facility(tmp_path, extra={"feeds": feeds})
    made.log["Shift"] = {1: "Quiet night.", 2: "See ![screen](/log/attachments/screen.png) of the trip.", 3: "Calm."}
    made.write()
    (tmp_path / "log/attachments").mkdir()
    (tmp_path / "log/attachments/screen.png").write_bytes(picture(30))
    (tmp_path / "pvs").mkdir()
    (tmp_path / "pvs/list.csv").write_text("name,description\nLTS:H1:CurrentAO,current\n")
    return made


def picture(width: int) -> bytes:
    out = BytesIO()
    Image.new("RGB", (width, 25), "navy").save(out, "PNG")
    return out.getvalue()


def passages(facility: Facility) -> dict[str, str]:
    with facility.workspace() as workspace:
        from aps_rag_pipeline.stores.catalog import unpack

        rows = workspace.catalog.rows("select r.id, p.locator, p.text from passages p join records r using (rid)")
        return {row["id"]: f"{row['locator']}\n{unpack(row['text']).decode()}" for row in rows}


def test_text_of_a_picture_stands_in_its_entry_and_is_cited_to_it(facility: Facility) -> None:
    facility.sync()
    said = passages(facility)
    assert READ in said["2"]
    assert "screen.png" in said["2"]
    assert said["2"].index("of the trip") < said["2"].index("$14B")
    assert "Read as" not in said["2"]  # no such name is known
    assert "$14B" not in said["1"] + said["3"]


def test_a_name_that_becomes_known_settles_pictures_read_before(facility: Facility) -> None:
    facility.sync()
    names = "name,description\nLTS:H1:CurrentAO,current\nS14B:P3:SumAI,sum\n"
    (facility.root / "pvs/list.csv").write_text(names)
    facility.sync()
    said = passages(facility)["2"]
    assert f"{READ}\nRead as: S14B:P3:SumAI (for $14B:P3:SumAl)" in said
    assert "LTS:H1" not in said  # another sector is no slip of the eye
    (facility.root / "pvs/list.csv").write_text(f"{names}$14B:P3:SumAI,its double\n")
    facility.sync()
    assert "Read as" not in passages(facility)["2"]  # two names look like it now


def test_pictures_without_text_are_counted(facility: Facility) -> None:
    (facility.root / "log/attachments/screen.png").write_bytes(picture(31))
    _, _, reports = facility.sync()
    counts = next(report.counts for report in reports if report.stage == "ocr")
    assert counts["pictures"] == counts["pictures_without_text"] == 1
    assert counts["pictures_read"] == 0


def test_names_are_those_of_the_corpus_with_their_readers(facility: Facility) -> None:
    facility.sync()
    with facility.workspace() as workspace:
        names = known_names(workspace.catalog)
        row = workspace.catalog.rows("select access from records where id = 'LTS:H1:CurrentAO'")[0]
    assert isinstance(names, KnownNames)
    assert names.meant("LTS:H1:CurrentA0", json.loads(row["access"])) == "LTS:H1:CurrentAO"
    assert names.meant("LTS:H1:CurrentA0", ["nobody knows"]) is None
    assert names.meant("LTS;H1", json.loads(row["access"])) == "LTS:H1", "the device of the variable is known too"


ALL = frozenset({"staff"})
SEEN_NAMES = KnownNames(
    (name, ALL)
    for name in (
        "S14B:P3:SumAI",
        "S35:KICKER:HVPS:VoltageM",
        "S7B:Q2:DacAI",
        "CRYO:O2:CP1:OilTempM",
        "LTS:H1:CurrentAO",
        "BpassPs:01:faultBi",
        "S-DCCT:CurrentM",
        "L1:RG2:KIK",
        "LI:RG2:KIK",
        "klystron",
    )
)


@pytest.mark.parametrize(
    ("seen", "meant"),
    [
        ("$14B:P3:SumAI", "S14B:P3:SumAI"),
        ("S$35:KICKER:HVPS:VoltageM", "S35:KICKER:HVPS:VoltageM"),
        ("S7B:Q2:DacAl,", "S7B:Q2:DacAI"),
        ("(CRYO:02:CP1:0ilTempM)", "CRYO:O2:CP1:OilTempM"),
        ("LTS:H1:CurrentA0", "LTS:H1:CurrentAO"),
        ("BpassPs;01:faultBi", "BpassPs:01:faultBi"),
        ("S35:KICKER:‘HVPS:VoltageM", "S35:KICKER:HVPS:VoltageM"),
        ("S-DCCT:CurrentM", None),  # as it is
        ("S-DCCT:CurrentN", None),  # no sign that looks like another
        ("S-DCCT:VoltageM", None),
        ("l1:RG2:KIK", None),  # two names look like it
        ("$36:KICKER:HVPS:VoltageM", None),  # not known: nothing is made up
        ("k1ystron", "klystron"),
        ("$35", None),
    ],
)
def test_misread_identifiers_are_settled_by_known_names_alone(seen: str, meant: str | None) -> None:
    assert SEEN_NAMES.meant(seen, ALL) == meant


def test_the_text_stays_and_what_it_was_taken_for_is_said() -> None:
    said = SEEN_NAMES.notes("trip of LTS:H1:CurrentA0 and $14B:P3:SumAI, LTS:H1:CurrentA0 again", ALL)
    assert said == ["LTS:H1:CurrentAO (for LTS:H1:CurrentA0)", "S14B:P3:SumAI (for $14B:P3:SumAI)"]


def test_a_name_is_told_only_to_those_who_may_see_it() -> None:
    hidden = KnownNames([("LTS:H1:CurrentAO", frozenset({"operations"}))])
    assert hidden.meant("LTS:H1:CurrentA0", ["operations"]) == "LTS:H1:CurrentAO"
    assert hidden.meant("LTS:H1:CurrentA0", ["operations", "staff"]) is None


def test_each_real_name_is_left_as_it_is(shared: Path) -> None:
    text = (shared / "epics/aps_pv_list.csv").read_text(encoding="utf-8")
    names = {name for name in re.split(r"[,\n]", text) if ":" in name}
    known = KnownNames((name, ALL) for name in names)
    assert [name for name in names if known.meant(name, ALL)] == []
    garbled = [name.replace("S", "$", 1) for name in names if "S" in name]
    right = sum(
        known.meant(word, ALL) == name for word, name in zip(garbled, (n for n in names if "S" in n), strict=True)
    )
    assert right / len(garbled) > 0.9


@pytest.mark.parametrize(
    ("seen", "meant"),
    [("61.14A", "61.14 A"), ("-12.5kV", "-12.5 kV"), ("12:30", "12:30"), ("MetAl", "MetAl"), ("1.5x", "1.5x")],
)
def test_a_unit_stands_apart_from_its_number(seen: str, meant: str) -> None:
    assert spaced(seen) == meant
