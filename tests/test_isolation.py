"""A parser that hangs, grows or crashes costs one file: a lasting failure that says why, and the next file is read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import openpyxl
import psutil
import pytest

from aps_rag_pipeline.content import isolation
from aps_rag_pipeline.content.assembly import Partition, Picture
from aps_rag_pipeline.content.isolation import Job, parse_apart
from aps_rag_pipeline.content.kinds import NoDocumentError
from aps_rag_pipeline.content.parsers import parse
from aps_rag_pipeline.content.partition import partition
from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources.base import Failure, SourceContext, UnreadableError, Upsert
from aps_rag_pipeline.sources.icms import DocumentFiles
from aps_rag_pipeline.sources.wiki import WikiFiles
from aps_rag_pipeline.sources.work_requests import WorkRequestFiles
from aps_rag_pipeline.stores.blobs import BlobStore
from tests import bad_parsers
from tests.documents import pdf, png

ZONE = ZoneInfo("America/Chicago")
PAGE = b'<html><title>T</title><p>Beam is back.</p><img src="p.png"><table><tr><td>a<td>b<tr><td>1<td>2</table></html>'


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Children whose parser does what the file says."""
    isolation._children.close()
    monkeypatch.setattr(isolation, "WORKER", bad_parsers.WORKER)
    yield
    isolation._children.close()


def read(data: bytes, blobs: BlobStore, name: str = "x", **limits: float) -> Partition:
    return partition(data, name, Limits(**limits), blobs, ZONE)


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


@pytest.mark.parametrize("order", ["hang", "spin"])
def test_a_parser_without_end_is_stopped(order: str, bad: None, blobs: BlobStore) -> None:
    read(PAGE, blobs)
    start = time.monotonic()
    with pytest.raises(UnreadableError, match=r"limits\.parse_timeout_s \(0\.5 s\)") as caught:
        read(b"%PDF-" + order.encode(), blobs, parse_timeout_s=0.5)
    assert time.monotonic() - start < 5
    assert caught.value.permanent
    assert "raise the limit" in caught.value.remedy
    assert read(PAGE, blobs).title == "T"


def test_a_parser_that_grows_is_stopped(bad: None, blobs: BlobStore) -> None:
    with pytest.raises(UnreadableError, match=r"limits\.parse_memory_mb \(150 MB\)") as caught:
        read(b"%PDF-grow", blobs, parse_memory_mb=150)
    assert caught.value.permanent
    assert "raise the limit" in caught.value.remedy


@pytest.mark.parametrize(
    ("order", "said", "permanent"),
    [
        ("crash", "crashed (SIGSEGV)", True),
        ("exit", "crashed (code 3)", True),
        ("killed", "ended from outside (SIGKILL)", False),
        ("deep", "nested too deeply", True),
        ("nonsense", "answered nonsense", True),
    ],
)
def test_a_parser_that_crashes_costs_its_file(
    order: str, said: str, permanent: bool, bad: None, blobs: BlobStore
) -> None:
    with pytest.raises(UnreadableError) as caught:
        read(b"%PDF-" + order.encode(), blobs)
    assert said in str(caught.value)
    assert caught.value.remedy
    assert caught.value.permanent == permanent


def test_what_a_library_prints_does_no_harm(bad: None, blobs: BlobStore) -> None:
    assert read(b"%PDF-talk", blobs).parts[0].text == "said"


def test_a_feed_goes_on_behind_a_file_that_hangs(bad: None, tmp_path: Path, blobs: BlobStore) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    for name, data in (("a.html", PAGE), ("b.pdf", b"%PDF-hang"), ("c.pdf", b"%PDF-crash"), ("d.html", PAGE)):
        (folder / name).write_bytes(data)
    feed = Feed(name="docs", source="icms", location=folder)
    context = SourceContext(ZONE, blobs, Limits(parse_timeout_s=1))
    changes = list(DocumentFiles(feed, context).changes(None))
    assert [change.record.id for change in changes if isinstance(change, Upsert)] == ["a.html", "d.html"]
    hung, crashed = (change for change in changes if isinstance(change, Failure))
    assert (hung.item, hung.place, hung.permanent) == ("b.pdf", "b.pdf", True)
    assert "parse_timeout_s" in hung.reason
    assert hung.remedy
    assert (crashed.item, crashed.permanent) == ("c.pdf", True)


def test_a_wiki_goes_on_behind_a_page_that_hangs(bad: None, tmp_path: Path, blobs: BlobStore) -> None:
    folder = tmp_path / "wiki"
    folder.mkdir()
    for name, text in (("a.md", "# A"), ("b.rst", "let it hang"), ("c.txt", "====== C ======")):
        (folder / name).write_text(text)
    feed = Feed(name="wiki", source="wiki", location=folder)
    changes = list(WikiFiles(feed, SourceContext(ZONE, blobs, Limits(parse_timeout_s=1))).changes(None))
    assert [change.record.title for change in changes if isinstance(change, Upsert)] == ["A", "C"]
    (hung,) = (change for change in changes if isinstance(change, Failure))
    assert (hung.place, hung.permanent) == ("b.rst", True)
    assert "parse_timeout_s" in hung.reason


def test_a_table_goes_on_behind_a_workbook_that_crashes(bad: None, tmp_path: Path, blobs: BlobStore) -> None:
    book = openpyxl.Workbook()
    for row in (["id", "title", "created"], ["7", "Leak", datetime(2025, 3, 4, 5, 6)]):
        book.active.append(row)
    book.save(tmp_path / "b.xlsx")
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04crash")
    feed = Feed(name="wrq", source="work_requests", location=tmp_path, include=("*.xlsx",))
    changes = list(WorkRequestFiles(feed, SourceContext(ZONE, blobs, Limits())).changes(None))
    (record,) = (change.record for change in changes if isinstance(change, Upsert))
    assert (record.id, record.created_at) == ("7", datetime(2025, 3, 4, 11, 6, tzinfo=UTC))
    (failure,) = (change for change in changes if isinstance(change, Failure))
    assert (failure.place, failure.permanent) == ("a.xlsx", True)
    assert "SIGSEGV" in failure.reason


def test_a_picture_that_is_slow_to_come_is_not_the_parsers_time(blobs: BlobStore) -> None:
    def find(_: str) -> Picture | None:
        time.sleep(0.7)
        return Picture("p.png", png(), "image/png")

    (attachment,) = parse_apart(PAGE, Job("p.html", Limits(parse_timeout_s=0.6), ZONE), blobs, find).attachments
    assert blobs.get(attachment.sha256) == png()


def test_what_comes_back_is_what_the_parser_found(blobs: BlobStore, tmp_path: Path) -> None:
    scan = pdf([None, ["A page of text with words enough to read."], None], "Scan")
    for name, data in (
        ("p.html", PAGE),
        ("s.pdf", scan),
        ("t.csv", b"a;b\n1;2\n"),
        ("m.md", b"# H\n\n[x](http://y.z)\n"),
    ):
        here = BlobStore(tmp_path / "here")
        asked: list[str] = []

        def find(address: str, asked: list[str] = asked) -> Picture | None:
            asked.append(address)
            return Picture("p.png", png(), "image/png")

        there = parse_apart(data, Job(name, Limits(), ZONE, None), blobs, find)
        assert there == Partition(**vars_of(parse(data, name, Limits(), here, ZONE, None, find)))
        assert [blobs.get(a.sha256) for a in there.attachments] == [here.get(a.sha256) for a in there.attachments]
        assert asked == (["p.png", "p.png"] if name == "p.html" else [])


def vars_of(found: Partition) -> dict[str, object]:
    return {name: getattr(found, name) for name in Partition.__dataclass_fields__}


def test_refusals_keep_their_kind(blobs: BlobStore) -> None:
    with pytest.raises(NoDocumentError):
        read(b"PK\x05\x06" + bytes(18), blobs, "x.zip")
    with pytest.raises(UnreadableError, match="password") as caught:
        read(pdf([["words"]], password="beam"), blobs)
    assert not isinstance(caught.value, NoDocumentError)
    assert "without" in caught.value.remedy


def test_an_error_of_the_caller_passes_and_leaves_no_child_behind(blobs: BlobStore) -> None:
    def find(_: str) -> Picture | None:
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            parse_apart(PAGE, Job("p.html", Limits(), ZONE, None), blobs, find)
    zone = timezone(timedelta(hours=-6))
    assert parse_apart(PAGE, Job("p.html", Limits(), zone, None), blobs, lambda _: None).title == "T"


def test_children_are_used_again_and_one_that_died_meanwhile_is_replaced(blobs: BlobStore) -> None:
    read(PAGE, blobs)
    before = {child.pid for child in children()}
    for _ in range(5):
        read(PAGE, blobs)
    assert {child.pid for child in children()} == before
    for child in children():
        os.kill(child.pid, signal.SIGKILL)
        child.wait(10)
    assert read(PAGE, blobs).title == "T"


def test_threads_have_children_of_their_own(blobs: BlobStore) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda number: read(PAGE.replace(b"back", b"%d" % number), blobs), range(24)))
    assert [part.parts[0].text for part in found] == [f"Beam is {number}." for number in range(24)]


def test_a_small_file_costs_milliseconds(blobs: BlobStore) -> None:
    read(PAGE, blobs)
    took = []
    for _ in range(30):
        start = time.perf_counter()
        read(PAGE, blobs)
        took.append(time.perf_counter() - start)
    assert sorted(took)[10] < 0.1


def test_credentials_stay_behind_and_nothing_runs_on(tmp_path: Path) -> None:
    code = (
        "import os, psutil\n"
        "from datetime import UTC\n"
        "from pathlib import Path\n"
        "from aps_rag_pipeline.content.partition import partition\n"
        "from aps_rag_pipeline.settings import Limits\n"
        "from aps_rag_pipeline.stores.blobs import BlobStore\n"
        f"partition(b'<html><p>x', 'x.html', Limits(), BlobStore(Path({str(tmp_path)!r})), UTC)\n"
        "child, = psutil.Process().children()\n"
        "assert 'ICMS_PASSWORD' not in child.environ()\n"
        "print(child.pid)\n"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"ICMS_PASSWORD": "beam", "PYTHONPATH": str(root)},
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert not psutil.pid_exists(int(done.stdout))
