"""The demo facility through the readers: what was planted is what they read, at first and on every later day."""

from __future__ import annotations

import hashlib
import importlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from aps_rag_pipeline.demo import advance, load_truth, write
from aps_rag_pipeline.demo import plan as planning
from aps_rag_pipeline.demo.score import holds
from aps_rag_pipeline.demo.truth import DayReport, Truth
from aps_rag_pipeline.records import Record, access_hash, citation_key, content_hash
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.sources.base import Complete, Cursor, Failure, Source, SourceContext, Upsert

SEED, RECORDS = 7, 300


class HashOnly:
    """A blob store that keeps nothing."""

    def put(self, data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()


@dataclass
class Reading:
    """What the readers have given so far, by citation key. Reading on takes what has changed since."""

    records: dict[str, Record] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    units: dict[str, set[str]] = field(default_factory=dict)
    cursors: dict[str, Any] = field(default_factory=dict)

    def text(self, key: str) -> str:
        record = self.records[key]
        parts = [record.title, record.author, *(part.text for part in record.parts)]
        parts += [f"{name}: {value}" for name, value in record.fields.items()]
        return "\n".join([*parts, *(link.target for link in record.links)])

    def everything(self) -> str:
        return "\n".join(self.text(key) for key in self.records)

    def read_on(self, out: Path) -> Reading:
        """The reading after this one; this one stays as it is."""
        settings = Settings.load(out / "facility.yaml")
        units = {unit: set(keys) for unit, keys in self.units.items()}
        found = Reading(dict(self.records), units=units, cursors=dict(self.cursors))
        for feed in settings.feeds:
            module = importlib.import_module(f"aps_rag_pipeline.sources.{feed.source}")
            context = SourceContext(settings.zone_of(feed), HashOnly(), settings.limits)
            source: Source = module.FORMS[feed.form](feed, context)
            found._take(source, settings.several(feed.source))
        return found

    def _take(self, source: Source, several: bool) -> None:
        given: dict[str, set[str]] = {}
        for change in source.changes(self.cursors.get(source.feed.name)):
            if isinstance(change, Upsert):
                record = change.record
                key = citation_key(record.source, record.feed, record.id, several)
                keys = given.setdefault(f"{source.feed.name}/{change.unit}", set())
                self.doubles += [key] if key in keys else []
                keys.add(key)
                self.records[key] = record
            elif isinstance(change, Complete):
                unit = f"{source.feed.name}/{change.unit}"
                for key in self.units.get(unit, set()) - given.get(unit, set()):
                    del self.records[key]
                self.units[unit] = given.get(unit, set())
            elif isinstance(change, Failure):
                self.failures.append(change)
            elif isinstance(change, Cursor):
                self.cursors[source.feed.name] = change.value


@pytest.fixture(scope="module", params=[False, True], ids=["shown", "held"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "out"
    write(out, seed=SEED, records=RECORDS, held_out=request.param)
    return out


@pytest.fixture(scope="module")
def truth(demo: Path) -> Truth:
    return load_truth(demo)


@pytest.fixture(scope="module")
def found(demo: Path, truth: Truth) -> Reading:
    return Reading().read_on(demo)


def test_nothing_fails_and_nothing_is_read_twice(found: Reading) -> None:
    assert found.failures == []
    assert found.doubles == []


def test_counts_are_exact(found: Reading, truth: Truth) -> None:
    assert Counter(record.source for record in found.records.values()) == truth.counts
    assert sum(truth.counts.values()) == RECORDS


def test_every_planned_record_is_read_and_no_other(found: Reading, truth: Truth) -> None:
    plan = planning.make(SEED, RECORDS, truth.held_out)
    expected = {entry.key for document in plan.log_documents() for entry in document.entries}
    for stream in (plan.all_requests(), plan.all_outages(), plan.all_threads(), plan.all_documents(), plan.variables()):
        expected |= {item.key for item in stream}
    expected |= {f"ICMS:papers/{paper.id}" for paper in plan.all_papers()}
    expected |= {f"WIKI:{page.id}" for page in plan.all_pages()}
    read_keys = {key for key in found.records if not key.startswith(("CODE:", "SDDS:"))}
    assert read_keys == expected


def test_every_key_of_the_truth_is_a_record(found: Reading, truth: Truth) -> None:
    keys = {key for identifier in truth.identifiers for key in (*identifier.gold, identifier.own or identifier.gold[0])}
    keys |= {key for question in truth.questions for key in question.gold}
    keys |= {key for incident in truth.incidents for key in incident.keys.values()}
    keys |= {key for found in (*truth.duplicates, *truth.contradictions) for key in found.keys}
    keys |= {key for found in truth.corrections for key in (found.key, found.corrects)}
    keys |= {found.key for found in (*truth.late, *truth.credentials, *truth.screenshots, *truth.churn)}
    assert keys - found.records.keys() == set()


def test_identifiers_stand_in_the_records_that_are_gold(found: Reading, truth: Truth) -> None:
    for identifier in truth.identifiers:
        bare = identifier.text.split()[-1] if identifier.kind == "number" else identifier.text
        if identifier.kind == "key":
            continue
        for key in identifier.gold:
            shown_only = key.startswith("TEAMS:") and identifier.kind == "pv"  # it stands in the picture
            # What a document's id is stands in its fields; a chat names the request.
            assert shown_only or bare in found.text(key) or bare in key, (identifier, key)


def test_a_device_is_named_by_no_record_outside_its_gold_set(found: Reading, truth: Truth) -> None:
    devices = {identifier.text: set(identifier.gold) for identifier in truth.identifiers if identifier.kind == "device"}
    for key in found.records:
        text = found.text(key).replace(",", " ").replace(".", " ").split()
        for device in devices.keys() & set(text):
            assert key in devices[device], (device, key)


def test_every_nugget_stands_in_a_gold_record(found: Reading, truth: Truth) -> None:
    for question in truth.questions:
        for nugget in question.nuggets:
            assert any(holds(found.text(key), nugget) for key in question.gold), question


def test_questions_without_answer_name_what_no_record_holds(found: Reading, truth: Truth) -> None:
    everything = found.everything()
    for name in ("S43A:Q2", "RF7:KLY1", "ID44u", "91244", "9911873", "2021-0107", "APS_1999412", "spallation", "muon"):
        assert name not in everything
    assert sum(not question.answerable for question in truth.questions) >= 30


def test_secrets_and_tags_stand_where_the_truth_says_and_nowhere_else(found: Reading, truth: Truth) -> None:
    texts = {key: found.text(key) for key in found.records}
    planted = [(known.key, known.secret) for known in truth.credentials]
    planted += [(known.key, known.phrase) for known in (*truth.churn, *truth.restricted)]
    for key, text in planted:
        assert [holder for holder, said in texts.items() if text in said] == [key]


def test_labels_are_read_as_they_were_written(found: Reading, truth: Truth) -> None:
    for restricted in truth.restricted:
        assert set(found.records[restricted.key].access) == set(restricted.access)
    assert {restricted.key.split(":")[0] for restricted in truth.restricted} == {"BELY", "WRQ", "DOWN", "WIKI", "ICMS"}
    planted = {key for question in truth.questions for key in question.gold}
    assert all(found.records[key].access == ("public",) for key in planted)


def test_planted_twists_read_as_the_truth_says(found: Reading, truth: Truth) -> None:
    for double in truth.duplicates:
        first, second = (found.records[key] for key in double.keys)
        assert [part.text for part in first.parts] == [part.text for part in second.parts]
    for correction in truth.corrections:
        assert correction.right in found.text(correction.key)
        assert correction.wrong in found.text(correction.corrects)
        assert correction.corrects.split(":")[1] in found.text(correction.key)
    for contradiction in truth.contradictions:
        for key, value in zip(contradiction.keys, contradiction.values, strict=True):
            assert value in found.text(key)
    for late in truth.late:
        created = found.records[late.key].created_at
        assert created is not None
        assert created.timestamp() == pytest.approx(datetime.fromisoformat(late.entered).timestamp(), abs=1)
        assert late.entered[:10] > late.happened[:10]


def test_incidents_can_be_followed_from_record_to_record(found: Reading, truth: Truth) -> None:
    for incident in truth.incidents:
        log, request = incident.keys["log"], incident.keys["work_request"]
        number, log_number = request.split(":")[1], log.split(":")[1]
        assert incident.part in found.text(log)
        assert number in found.text(log)
        assert log_number in found.text(request)
        assert incident.serial in found.text(request)
        assert incident.pv in found.text(log)
        if "downtime" in incident.keys:
            fields = found.records[incident.keys["downtime"]].fields
            assert fields["duration_s"] == pytest.approx(incident.hours_lost * 3600, abs=181)
            assert {number, log_number} <= set(found.text(incident.keys["downtime"]).replace(":", " ").split())
        if "chat" in incident.keys:
            assert log_number in found.text(incident.keys["chat"])


def test_pictures_are_attached(found: Reading, truth: Truth, demo: Path) -> None:
    for screenshot in truth.screenshots:
        digest = hashlib.sha256((demo / screenshot.file).read_bytes()).hexdigest()
        assert digest in {attachment.sha256 for attachment in found.records[screenshot.key].attachments}


# the days after


Snapshot = dict[str, tuple[str, str]]


def snapshot(found: Reading) -> Snapshot:
    return {key: (content_hash(record), access_hash(record.access)) for key, record in found.records.items()}


def assert_day(report: DayReport, before: Reading, after: Reading) -> None:
    """What differs between two readings is what the report says, and nothing else."""
    old, new = snapshot(before), snapshot(after)
    assert after.failures == []
    assert new.keys() - old.keys() == {added.key for added in report.added}
    assert old.keys() - new.keys() == {deleted.key for deleted in report.deleted}
    kept = old.keys() & new.keys()
    # A commit moves the fields of the file that it touches, and of no other.
    assert {key for key in kept if old[key][0] != new[key][0]} == {edited.key for edited in report.edited}
    assert {key for key in kept if old[key][1] != new[key][1]} == {moved.key for moved in report.relabelled}
    everything = after.everything()
    for edited in report.edited:
        assert edited.old_text in before.text(edited.key)
        assert edited.new_text in after.text(edited.key)
        assert edited.old_text not in everything
    for moved in report.relabelled:
        assert before.records[moved.key].access == moved.old
        assert after.records[moved.key].access == moved.new
    for added in report.added:
        assert added.text in after.text(added.key)
    for deleted in report.deleted:
        assert deleted.old_text in before.text(deleted.key)
        assert deleted.old_text not in everything


def test_each_day_changes_what_its_report_says(demo: Path, found: Reading, truth: Truth) -> None:
    before, seen = found, set()
    days = 1 if truth.held_out else 3
    for number in range(1, days + 1):
        report = advance(demo)
        after = before.read_on(demo)
        now = load_truth(demo)
        assert report.day == number
        assert now.days[-1] == report
        assert_day(report, before, after)
        assert Counter(record.source for record in after.records.values()) == now.counts
        sources = {change.key.split(":")[0] for change in (*report.edited, *report.deleted)}
        assert len(sources) == 9
        assert len(report.added) > len(report.deleted) > 0
        seen |= {added.text for added in report.added}
        before = after
    assert len(seen) == 10 * days
    assert now.questions == truth.questions


def test_days_are_the_same_wherever_they_are_made(tmp_path: Path) -> None:
    reports = []
    for name in ("here", "there"):
        write(tmp_path / name, seed=5, records=RECORDS)
        reports.append([advance(tmp_path / name) for _ in range(2)])
    assert reports[0] == reports[1]
    files = [sorted(path for path in (tmp_path / name).rglob("*") if path.is_file()) for name in ("here", "there")]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


def test_a_folder_without_a_demo_cannot_advance(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="truth"):
        advance(tmp_path)
