"""What every live feed owes to `LiveSource`: tokens decide, nothing is lost to a fault, nothing is removed unasked."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from aps_rag_pipeline.records import Attachment, Part, Record
from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources.base import (
    Complete,
    Cursor,
    Failure,
    FeedError,
    Ignored,
    Relabel,
    SourceContext,
    UnreadableError,
    Upsert,
)
from aps_rag_pipeline.sources.live import Listed, LiveSource, Memory, Scan
from aps_rag_pipeline.sources.net.errors import GoneError, OutageError
from aps_rag_pipeline.stores.blobs import BlobStore


@dataclass
class Service:
    """A service in memory. `broken` maps an item to what reading it raises; `hidden` items are missing in listings."""

    texts: dict[str, str] = field(default_factory=dict)
    broken: dict[str, Exception] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    unlisted: set[str] = field(default_factory=set)
    tokenless: set[str] = field(default_factory=set)
    pictures: dict[str, bytes] = field(default_factory=dict)
    down: bool = False
    repeat_pages: bool = False
    read: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    closed: int = 0


class MemoryScan(Scan[Listed]):
    service: Service

    def units(self) -> Iterator[Listed | Failure | Ignored]:
        if self.service.down:
            raise OutageError("service: no answer")
        for part in sorted(self.service.unlisted):
            yield Failure(part, part, part, "this part cannot be listed")
        listed = [
            Listed(name, "" if name in self.service.tokenless else str(hash(text)))
            for name, text in sorted(self.service.texts.items())
            if name not in self.service.hidden and name.split("/")[0] not in self.service.unlisted
        ]
        yield from listed
        if self.service.repeat_pages:
            yield from listed

    def read(self, unit: Listed) -> Iterator[Upsert | Failure | Ignored]:
        self.service.read.append(unit.name)
        self.service.threads.add(threading.get_ident())
        if unit.name in self.service.broken:
            raise self.service.broken[unit.name]
        attachments: tuple[Attachment, ...] = ()
        if unit.name in self.service.pictures:

            def fetch() -> bytes:
                self.service.fetched.append(unit.name)
                return self.service.pictures[unit.name]

            sha256 = self.memory.attachment(self.context.blobs, unit.name, "picture", fetch)
            attachments = (Attachment("p.png", "image/png", sha256),)
        text = self.service.texts[unit.name]
        yield Upsert(
            Record("wiki", "live", unit.name, unit.name, parts=(Part("prose", text),), attachments=attachments),
            unit.name,
            unit.name,
        )

    def prefetch(self, units: Sequence[Listed]) -> None:
        self.service.batches.append(len(units))

    def gone(self, name: str) -> bool:
        if self.service.down:
            raise OutageError("service: no answer")
        return name not in self.service.texts

    def close(self) -> None:
        self.service.closed += 1


class MemorySource(LiveSource[Listed]):
    key = "wiki"
    service: Service

    def scan(self, memory: Memory) -> Scan[Listed]:
        made = MemoryScan(self.feed, self.context, memory)
        made.service = self.service
        return made


@pytest.fixture
def service() -> Service:
    return Service({f"page/{n}": f"text {n}" for n in range(5)})


@pytest.fixture
def source(service: Service, tmp_path: Path) -> MemorySource:
    feed = Feed(name="live", source="wiki", form="memory", url="memory://")
    made = MemorySource(feed, SourceContext(ZoneInfo("UTC"), BlobStore(tmp_path / "blobs"), Limits()))
    made.service = service
    return made


def stream(source: MemorySource, cursor: Any = None, retry: tuple[str, ...] = ()) -> tuple[list[Any], Any]:
    source.service.read.clear()
    changes = list(source.changes(cursor, frozenset(retry)))
    assert isinstance(changes[-1], Cursor)
    return changes[:-1], changes[-1].value


def kinds(changes: list[Any], kind: type) -> list[Any]:
    return [change for change in changes if isinstance(change, kind)]


def test_a_second_look_reads_nothing(source, service):
    changes, cursor = stream(source)
    assert len(kinds(changes, Upsert)) == len(kinds(changes, Complete)) == 5
    assert stream(source, cursor) == ([], cursor)
    assert service.read == []
    assert service.closed == 2


def test_only_what_moved_is_read_and_a_revert_is_seen(source, service):
    _, first = stream(source)
    service.texts["page/2"] = "edited"
    service.texts["page/9"] = "late"
    _, second = stream(source, first)
    assert sorted(service.read) == ["page/2", "page/9"]
    service.texts["page/2"] = "text 2"
    _, third = stream(source, second)
    assert service.read == ["page/2"]
    assert third["units"]["page/2"] == first["units"]["page/2"]


def test_pages_given_twice_are_read_once(source, service):
    service.repeat_pages = True
    stream(source)
    assert len(service.read) == 5


def test_what_vanishes_is_complete_without_records(source, service):
    _, cursor = stream(source)
    del service.texts["page/3"]
    changes, cursor = stream(source, cursor)
    assert changes == [Complete("page/3")]
    assert "page/3" not in cursor["units"]


def test_what_a_listing_leaves_out_but_answers_is_kept_and_told(source, service):
    _, cursor = stream(source)
    service.hidden = {"page/3"}
    changes, cursor = stream(source, cursor)
    (failure,) = changes
    assert failure.unit == failure.item == "page/3"
    assert "leaves it out" in failure.reason
    service.hidden = set()
    assert stream(source, cursor)[0] == []
    assert service.read == []


def test_the_same_holds_when_everything_is_read_again(source, service):
    _, cursor = stream(source)
    service.hidden = {"page/3"}
    changes, _ = stream(source, source.again(cursor))
    assert len(kinds(changes, Upsert)) == 4
    assert [f.unit for f in kinds(changes, Failure)] == ["page/3"]


def test_an_empty_listing_is_an_outage(source, service):
    _, cursor = stream(source)
    service.texts.clear()
    with pytest.raises(FeedError, match="nothing is listed, but 5 items"):
        list(source.changes(cursor))
    assert list(source.changes(None))[-1].value["units"] == {}


def test_a_part_that_cannot_be_listed_keeps_what_lies_below_it(source, service):
    service.texts["other/1"] = "elsewhere"
    _, cursor = stream(source)
    service.unlisted = {"page"}
    del service.texts["page/1"]
    changes, cursor = stream(source, cursor)
    assert [type(change) for change in changes] == [Failure]
    assert len(cursor["units"]) == 6
    service.unlisted = set()
    assert stream(source, cursor)[0] == [Complete("page/1")]


@pytest.mark.parametrize("error", [OutageError("500"), ValueError("odd shape"), UnreadableError("x", permanent=False)])
def test_an_item_that_fails_is_tried_by_every_sync_and_holds_up_no_other(source, service, error):
    service.broken["page/1"] = error
    changes, cursor = stream(source)
    assert len(kinds(changes, Upsert)) == 4
    assert [f.unit for f in kinds(changes, Failure)] == ["page/1"]
    assert Complete("page/1") not in changes
    _, cursor = stream(source, cursor)
    assert service.read == ["page/1"]
    service.broken.clear()
    changes, cursor = stream(source, cursor)
    assert [u.record.id for u in kinds(changes, Upsert)] == ["page/1"]
    assert stream(source, cursor)[0] == []


def test_a_known_item_that_fails_after_an_edit_keeps_its_old_token(source, service):
    _, first = stream(source)
    service.texts["page/1"] = "edited"
    service.broken["page/1"] = OutageError("500")
    _, second = stream(source, first)
    assert second == first
    service.broken.clear()
    changes, _ = stream(source, second)
    assert kinds(changes, Upsert)[0].record.parts[0].text == "edited"


def test_a_retried_item_that_fails_again_is_still_tried(source, service):
    _, cursor = stream(source)
    service.broken["page/1"] = OutageError("500")
    _, cursor = stream(source, cursor, ("page/1",))
    stream(source, cursor)
    assert service.read == ["page/1"]


def test_a_permanent_failure_is_read_again_only_when_it_moves_or_is_asked_for(source, service):
    service.broken["page/1"] = UnreadableError("damaged")
    changes, cursor = stream(source)
    assert kinds(changes, Failure)[0].permanent
    assert stream(source, cursor)[0] == []
    stream(source, cursor, ("page/1",))
    assert service.read == ["page/1"]


def test_what_goes_between_listing_and_reading_is_gone(source, service):
    _, cursor = stream(source)
    service.texts["page/1"] = "edited and at once deleted"
    service.broken["page/1"] = GoneError("404")
    changes, cursor = stream(source, cursor)
    assert changes == [Complete("page/1")]
    assert "page/1" not in cursor["units"]


def test_a_row_of_bad_items_is_no_outage_while_the_service_answers(source, service):
    service.broken = {f"page/{n}": OutageError("500") for n in range(4)}
    changes, _ = stream(source)
    assert len(kinds(changes, Failure)) == 4
    assert [u.record.id for u in kinds(changes, Upsert)] == ["page/4"]


def test_a_service_that_goes_away_ends_the_stream(source, service):
    class Dying(dict):
        def __contains__(self, name):
            service.down = True
            return True

        def __getitem__(self, name):
            return OutageError("no answer")

    service.broken = Dying()
    with pytest.raises(FeedError, match="no longer answers"):
        list(source.changes(None))


def test_attachments_are_fetched_once_also_when_everything_is_read_again(source, service):
    service.pictures = {"page/1": b"png"}
    _, cursor = stream(source)
    service.texts["page/1"] = "edited"
    changes, cursor = stream(source, cursor)
    assert kinds(changes, Upsert)[0].record.attachments
    stream(source, source.again(cursor))
    assert service.fetched == ["page/1"]
    source.context.blobs.remove(kinds(changes, Upsert)[0].record.attachments[0].sha256)
    stream(source, source.again(cursor))
    assert service.fetched == ["page/1", "page/1"], "bytes that are no longer there are fetched again"


def test_blocks_are_prefetched_and_read_in_parallel_in_order(source, service):
    service.texts = {f"page/{n:03}": "text" for n in range(120)}
    changes, _ = stream(source)
    assert service.batches == [50, 50, 20]
    names = [u.record.id for u in kinds(changes, Upsert)]
    assert names == sorted(names)
    assert threading.get_ident() not in service.threads


def test_fingerprints_move_with_anything(source, service):
    prints = [source.fingerprint()]
    service.texts["page/1"] = "edited"
    prints.append(source.fingerprint())
    del service.texts["page/0"]
    prints.append(source.fingerprint())
    assert len(set(prints)) == 3
    service.unlisted = {"page"}
    assert source.fingerprint() is None
    service.unlisted = set()
    service.tokenless = {"page/1"}
    assert source.fingerprint() is None, "a unit of which nothing is known may have moved"
    service.down = True
    with pytest.raises(FeedError):
        source.fingerprint()


def test_check_says_what_is_there_or_that_nothing_is(source, service):
    assert source.check().units == 5
    service.texts.clear()
    with pytest.raises(FeedError, match="nothing to read"):
        source.check()
    assert list(source.inventory()) == []


def test_items_that_hang_cost_a_bounded_time_and_the_rest_comes_with_the_next_sync(source, service, monkeypatch):
    hours = itertools.count(step=1000)
    monkeypatch.setattr("aps_rag_pipeline.sources.live.time.monotonic", lambda: float(next(hours)))
    source.block = 2
    service.broken = {"page/0": OutageError("no answer"), "page/1": OutageError("no answer")}
    changes, cursor = stream(source)
    assert [f.unit for f in kinds(changes, Failure)] == ["page/0", "page/1", "(the rest)"]
    assert "3 items" in kinds(changes, Failure)[-1].reason
    assert cursor["units"] == {}
    service.broken.clear()
    changes, cursor = stream(source, cursor)
    assert len(kinds(changes, Upsert)) == 5


def test_labels_that_the_listing_tells_hold_while_the_text_cannot_be_read(source, service, monkeypatch):
    monkeypatch.setattr(MemoryScan, "labels", lambda self, unit: (unit.name, ("managers",)))
    for error in (OutageError("500"), UnreadableError("damaged"), ValueError("odd")):
        service.broken = {"page/1": error}
        changes, _ = stream(source)
        assert kinds(changes, Relabel) == [Relabel("page/1", ("managers",))]


def test_a_restriction_that_is_taken_back_before_the_text_was_read_is_seen(source, service, monkeypatch):
    _, cursor = stream(source)
    before = dict(service.texts)
    service.texts["page/1"] = "restricted"
    service.broken = {"page/1": OutageError("500")}
    monkeypatch.setattr(MemoryScan, "labels", lambda self, unit: (unit.name, ("managers",)))
    _, cursor = stream(source, cursor)
    service.texts, service.broken = before, {}
    changes, _ = stream(source, cursor)
    assert [u.record.id for u in kinds(changes, Upsert)] == ["page/1"]


def test_a_cursor_of_another_form_is_none_of_ours(source, service):
    assert source.again({"units": {"2024/a.json": "x"}}) is None
    changes, cursor = stream(source, {"units": {"2024/a.json": "x"}})
    assert len(kinds(changes, Upsert)) == 5
    assert cursor["form"] == "memory"


def test_an_odd_reply_proves_nothing(source, service, monkeypatch):
    _, cursor = stream(source)
    service.hidden = {"page/3"}
    monkeypatch.setattr(MemoryScan, "gone", lambda self, name: int(name))
    changes, cursor = stream(source, cursor)
    assert [type(change) for change in changes] == [Failure]
    assert "page/3" in cursor["units"]
