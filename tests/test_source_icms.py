"""Documents and papers: files joined to their sidecar, revisions that replace each other, nothing lost on the way."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from zoneinfo import ZoneInfo

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aps_rag_pipeline.content.dates import iso_utc
from aps_rag_pipeline.records import Link, Record
from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Change, Complete, Cursor, Failure, FeedError, Ignored, SourceContext, Upsert
from aps_rag_pipeline.sources.sidecar import arxiv_id, normal_doi, revision_order
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.documents import pdf, png, utc


class Tree:
    """A feed in a folder, read again and again as the sync does."""

    def __init__(self, root: Path, sidecar: str = "", **feed: object) -> None:
        self.root = root / "docs"
        self.root.mkdir()
        self.sidecar = root / sidecar if sidecar else None
        self.blobs = BlobStore(root / "blobs")
        self.options = feed
        self.cursor: object = None

    def write(self, name: str, data: bytes | str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def describe(self, *rows: str) -> None:
        assert self.sidecar is not None
        self.sidecar.write_text("\n".join(rows) + "\n", encoding="utf-8")

    def changes(self) -> list[Change]:
        feed = Feed.model_validate(
            {"name": "docs", "source": "icms", "location": self.root, "sidecar": self.sidecar, **self.options}
        )
        context = SourceContext(ZoneInfo("America/Chicago"), self.blobs, Limits())
        found = list(open_source(feed, context).changes(self.cursor))
        assert isinstance(found[-1], Cursor)
        self.cursor = found[-1].value
        return found[:-1]


def records(changes: Iterable[Change]) -> dict[str, Record]:
    return {change.record.id: change.record for change in changes if isinstance(change, Upsert)}


def failures(changes: Iterable[Change]) -> list[Failure]:
    return [change for change in changes if isinstance(change, Failure)]


def text(record: Record) -> str:
    return "\n".join(part.text for part in record.parts)


HEAD = "Content ID,File,Title,Revision,Status,In Date,Author,Access,Group"


def test_without_a_sidecar_each_file_is_a_record_by_its_path(tmp_path: Path) -> None:
    tree = Tree(tmp_path, access=["ops"], url_template="https://x.example/{id}")
    tree.write("rf/Klystron start, März.txt", "Turn on the heater. See WRQ:20417 and S35:KICKER:HVPS:VoltageM.")
    tree.write("rf/scan.pdf", pdf([None], "Scan"))
    tree.write("rf/panel.png", png())
    tree.write("rf/bad.pdf", b"%PDF-1.4 broken")
    tree.write("rf/tool.exe", b"MZ\x00\x01" * 40)
    changes = tree.changes()
    found = records(changes)
    assert set(found) == {"rf/Klystron start, März.txt", "rf/scan.pdf", "rf/panel.png"}
    note = found["rf/Klystron start, März.txt"]
    assert (note.title, note.access) == ("Klystron start, März", ("ops",))
    assert note.url == "https://x.example/rf/Klystron start, März.txt"
    assert {(link.kind, link.target) for link in note.links} == {
        ("work_request", "WRQ:20417"),
        ("process_variable", "S35:KICKER:HVPS:VoltageM"),
    }
    assert found["rf/scan.pdf"].attachments[0].page == 1
    assert found["rf/panel.png"].attachments[0].media_type == "image/png"
    (failure,) = failures(changes)
    assert (failure.place, failure.permanent) == ("rf/bad.pdf", True)
    assert failure.remedy
    assert [change.place for change in changes if isinstance(change, Ignored)] == ["rf/tool.exe"]
    assert Complete("rf/bad.pdf") not in changes


def test_sidecar_describes_by_path_case_depth_or_content_id(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    for name in ("a/APS_1.txt", "b/Two.TXT", "APS_3.txt", "plain.txt"):
        tree.write(name, f"words of {name}")
    tree.describe(
        HEAD,
        'APS_1,a/APS_1.txt,First,2,RELEASED,01/31/2024,"Doe, J.",public,RF',
        "APS_2,docs\\b\\two.txt,Second,A,RELEASED,soon,Roe,ops; rf,",
        "APS_3,,Third,,,,,,",
    )
    found = records(tree.changes())
    assert set(found) == {"APS_1", "APS_2", "APS_3", "plain.txt"}
    first = found["APS_1"]
    assert (first.title, first.author, first.access) == ("First", "Doe, J.", ("public",))
    assert first.created_at == first.modified_at == utc(2024, 1, 31, 6), "midnight in the feed's zone"
    assert first.fields == {
        "file": "a/APS_1.txt",
        "content_id": "APS_1",
        "revision": "2",
        "status": "RELEASED",
        "in_date": iso_utc(utc(2024, 1, 31, 6)),
        "group": "RF",
    }
    assert found["APS_2"].access == ("ops", "rf")
    assert (found["APS_2"].created_at, found["APS_2"].fields["in_date_raw"]) == (None, "soon")
    assert found["APS_3"].access == (), "a blank label admits nobody"
    assert found["plain.txt"].access == ("public",), "a file without a row has the feed's labels"


def test_new_revision_replaces_the_old_text_and_names_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    tree.write("kicker_r9.txt", "old wording")
    tree.describe(HEAD, "APS_7,kicker_r9.txt,Kicker,9,RELEASED,2023-01-05,A,public,")
    before = tree.changes()
    assert text(records(before)["APS_7"]) == "old wording"
    assert Complete("APS_7") in before

    tree.write("kicker_r10.txt", "new wording")
    tree.describe(
        HEAD,
        "APS_7,kicker_r9.txt,Kicker,9,SUPERSEDED,2023-01-05,A,public,",
        "APS_7,kicker_r10.txt,Kicker timing,10,RELEASED,2024-03-04,B,public,",
        "APS_7,kicker_r11.txt,Kicker timing,11,DRAFT,2024-05-01,B,public,",
    )
    tree.write("kicker_r11.txt", "draft wording")
    after = tree.changes()
    (change,) = (change for change in after if isinstance(change, Upsert))
    assert (change.unit, change.record.id) == ("APS_7", "APS_7")
    assert text(change.record) == "new wording"
    assert change.record.fields["revisions"] == [
        "11, DRAFT, 2024-05-01, kicker_r11.txt",
        "9, SUPERSEDED, 2023-01-05, kicker_r9.txt",
    ]
    superseded = [link for link in change.record.links if link.kind == "supersedes"]
    assert superseded == [Link("supersedes", "APS_7 9", "kicker_r9.txt")], "a draft is not superseded"
    assert (change.record.created_at, change.record.modified_at) == (utc(2023, 1, 5, 6), utc(2024, 3, 4, 6))
    assert not any(isinstance(change, Failure) for change in after)
    assert [change for change in after if isinstance(change, Complete)] == [Complete("APS_7")]
    assert tree.changes() == []


def test_a_damaged_current_revision_keeps_what_was_there(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    tree.write("old.txt", "old wording")
    tree.write("new.pdf", b"%PDF-1.4 cut off")
    tree.describe(HEAD, "APS_7,old.txt,K,1,RELEASED,,,public,", "APS_7,new.pdf,K,2,RELEASED,,,public,")
    changes = tree.changes()
    (failure,) = failures(changes)
    assert (failure.item, failure.unit) == ("APS_7", "APS_7")
    assert "new.pdf" in failure.reason
    assert Complete("APS_7") not in changes


def test_of_two_renditions_the_readable_one_is_taken(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    tree.write("APS_9.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504) + "WordDocument".encode("utf-16-le"))
    tree.write("APS_9.pdf", pdf([["The readable rendition of the same document."]]))
    tree.describe("content id,title", "APS_9,Nine")
    changes = tree.changes()
    assert text(records(changes)["APS_9"]) == "The readable rendition of the same document."
    assert not failures(changes)


def test_rows_that_lead_nowhere_are_failures_and_lose_nothing(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    tree.write("here.txt", "words")
    tree.describe(
        HEAD,
        "APS_1,here.txt,Here,1,,,,public,",
        "APS_2,gone.txt,Gone,1,,,,public,",
        ",,No name,1,,,,public,",
        "APS_3,here.txt,Twice,1,,,,public,",
    )
    changes = tree.changes()
    assert set(records(changes)) == {"APS_1"}
    told = {failure.place: failure.reason for failure in failures(changes)}
    assert set(told) == {"sidecar.csv:3", "sidecar.csv:4", "sidecar.csv:5"}
    assert "gone.txt" in told["sidecar.csv:3"]
    assert "neither" in told["sidecar.csv:4"]
    assert "sidecar.csv:2" in told["sidecar.csv:5"]
    tree.write("gone.txt", "came back")
    changes = tree.changes()
    assert set(records(changes)) == {"APS_2"}
    assert not failures(changes), "nothing else is read again"


@pytest.mark.skipif(os.geteuid() == 0, reason="root can list every folder")
def test_folder_that_cannot_be_listed_removes_no_document(tmp_path: Path) -> None:
    folder_outage(tmp_path, lambda folder: folder.chmod(0))


def test_folder_that_fails_to_list_removes_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_outage(tmp_path, lambda folder: outage(monkeypatch, folder))


def outage(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    real = os.scandir

    def scandir(path: str | Path = ".") -> object:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


def folder_outage(tmp_path: Path, cut_off: object) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    tree.write("locked/a.txt", "words")
    tree.write("open/b.txt", "words")
    tree.describe(HEAD, "APS_1,locked/a.txt,A,1,,,,public,", "APS_2,open/b.txt,B,1,,,,public,")
    assert set(records(tree.changes())) == {"APS_1", "APS_2"}
    assert callable(cut_off)
    cut_off(tree.root / "locked")
    changes = tree.changes()
    assert Complete("APS_1") not in changes
    assert {failure.unit for failure in failures(changes)} == {"locked", "APS_1"}
    assert not any(failure.permanent for failure in failures(changes))


def test_a_sidecar_that_is_written_again_with_the_same_rows_makes_nobody_read_all_files(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    for name in "ab":
        tree.write(f"{name}.txt", "words")
    rows = [HEAD, "APS_1,a.txt,A,1,,,,public,", "APS_2,b.txt,B,1,,,,public,"]
    tree.describe(*rows)
    assert set(records(tree.changes())) == {"APS_1", "APS_2"}
    assert tree.sidecar is not None
    os.utime(tree.sidecar, ns=(1, 1))
    assert tree.changes() == []
    tree.describe(rows[0], rows[1].replace(",A,", ",Another,"), rows[2])
    assert records(tree.changes())["APS_1"].title == "Another"


def test_a_folder_that_cannot_be_listed_blocks_no_document_that_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    tree.write("locked/x.txt", "words")
    tree.write("b.txt", "words")
    tree.describe(HEAD, "APS_2,b.txt,B,2,,,,public,", "APS_2,,B,1,,,,public,")
    assert set(records(tree.changes())) == {"APS_2", "locked/x.txt"}
    outage(monkeypatch, tree.root / "locked")
    assert {change.unit for change in tree.changes() if isinstance(change, Complete | Failure)} == {"locked"}


def test_only_the_documents_whose_rows_moved_are_read_again(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    for name in "abcd":
        tree.write(f"{name}.txt", f"words of {name}")
    rows = {name: f"APS_{name},{name}.txt,Title {name},1,,,,public," for name in "abc"}
    tree.describe(HEAD, *rows.values())

    def read() -> set[str]:
        return {change.unit for change in tree.changes() if isinstance(change, Complete)}

    assert read() == {"APS_a", "APS_b", "APS_c", "d.txt"}
    rows["b"] = rows["b"].replace("Title b", "Another")
    tree.describe(HEAD, *rows.values())
    assert read() == {"APS_b"}
    tree.describe(HEAD, "APS_d,d.txt,Title d,1,,,,public,", *rows.values())  # all other rows move one down
    assert read() == {"APS_d", "d.txt"}
    tree.describe(HEAD, *rows.values(), "APS_a,,Title a,2,,,,public,")  # a revision without its file
    assert read() == {"APS_d", "d.txt", "APS_a"}
    tree.describe(HEAD, *rows.values(), ",,nothing,,,,,,", "APS_a,,Title a,2,,,,public,", "APS_e,,E,1,,,,public,")
    assert read() == {"APS_e", "sidecar sidecar.csv"}
    tree.describe(HEAD, *rows.values(), ",,nothing,,,,,,", "APS_e,,E,1,,,,public,")
    assert read() == {"APS_a", "APS_e"}  # where the row stands of which there should be a file is told
    tree.describe(HEAD.replace("Access", "Remark"), *rows.values())  # now nobody has a label of their own
    assert read() == {"APS_a", "APS_b", "APS_c", "APS_e", "sidecar sidecar.csv"}
    tree.describe(HEAD.replace("Access", "Remark"), *rows.values())
    assert read() == set()


def test_a_sidecar_beyond_the_limit_is_told_by_its_size_and_times(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    tree.describe(HEAD, "x" * 1000)
    assert tree.sidecar is not None
    states = []
    for megabytes in (0.0005, 1.0):
        for moment in (1, 2):
            os.utime(tree.sidecar, ns=(moment, moment))
            feed = Feed.model_validate(
                {"name": "docs", "source": "icms", "location": tree.root, "sidecar": tree.sidecar}
            )
            context = SourceContext(ZoneInfo("America/Chicago"), tree.blobs, Limits(max_file_mb=megabytes))
            states.append(open_source(feed, context).fingerprint())
    assert states[0] != states[1]
    assert states[2] == states[3]


def test_a_sidecar_that_is_too_large_or_no_file_fails_the_feed_unread(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    tree.write("a.txt", "words")
    assert tree.sidecar is not None
    with tree.sidecar.open("wb") as stream:
        stream.truncate(int(Limits().max_file_mb * 1e6) + 1)
    with pytest.raises(FeedError, match=r"sidecar\.csv: .*max_file_mb"):
        tree.changes()
    tree.sidecar.unlink()
    os.mkfifo(tree.sidecar)  # to read it would wait for ever
    with pytest.raises(FeedError, match="not a regular file"):
        tree.changes()


def test_sidecar_as_a_workbook_with_a_column_map(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["Export of 2024"], ["Doc", "Where", "Heading"], ["U1-2.DRW", "d.txt", "Drawing"]):
        book.active.append(row)
    book.save(tmp_path / "list.xlsx")
    columns = {"content_id": "Doc", "file": "Where", "title": "Heading"}
    tree = Tree(tmp_path, "list.xlsx", columns=columns)
    tree.write("d.txt", "words")
    assert records(tree.changes())["U1-2.DRW"].title == "Drawing"


def test_unusable_sidecar_fails_the_feed(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "sidecar.csv")
    tree.write("a.txt", "words")
    tree.describe("colour,size", "red,2")
    with pytest.raises(FeedError, match="colour"):
        tree.changes()
    assert tree.sidecar is not None
    tree.sidecar.unlink()
    with pytest.raises(FeedError, match=r"sidecar\.csv"):
        tree.changes()


def test_sidecar_inside_the_folder_is_no_document(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "docs/list.csv")
    tree.write("a.txt", "words")
    tree.describe("file,title", "a.txt,Alpha")
    assert [(record.id, record.title) for record in records(tree.changes()).values()] == [("a.txt", "Alpha")]


def test_papers_by_arxiv_id_and_doi(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "papers.csv")
    tree.write("2101.00001v2.pdf", pdf([["A measurement of beam loss in the storage ring."]]))
    tree.write("x/old.txt", "an old paper")
    tree.write("prab.txt", "a paper of a journal")
    tree.describe(
        "file,arxiv_id,doi,title,authors,year",
        ',https://arxiv.org/abs/2101.00001v2,,Beam loss,"Doe, J.; Roe, R.",2021',
        "x/old.txt,HEP-EX/9901001,,Old,Ann Bee and Cy Dee,1999",
        'prab.txt,,https://doi.org/10.1103/PhysRevAccelBeams.24.010101,Journal,"A. B, C. D",2021',
    )
    found = records(tree.changes())
    assert set(found) == {"arXiv:2101.00001", "arXiv:hep-ex/9901001", "doi:10.1103/physrevaccelbeams.24.010101"}
    first = found["arXiv:2101.00001"]
    assert first.fields["authors"] == ["Doe, J.", "Roe, R."]
    assert (first.fields["year"], first.fields["arxiv_id"]) == (2021, "2101.00001")
    assert (first.url, first.title) == ("https://arxiv.org/abs/2101.00001", "Beam loss")
    assert "beam loss in the storage ring" in text(first)
    assert found["arXiv:hep-ex/9901001"].fields["authors"] == ["Ann Bee", "Cy Dee"]
    assert found["doi:10.1103/physrevaccelbeams.24.010101"].fields["authors"] == ["A. B", "C. D"]


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("arXiv:2101.00001v3", ("2101.00001", "v3")),
        ("https://arxiv.org/pdf/2101.00001.pdf", ("2101.00001", "")),
        ("physics/0012345v1", ("physics/0012345", "v1")),
        ("math.GT/0309136", ("math.gt/0309136", "")),
        ("APS_1273342", ("", "")),
        ("", ("", "")),
    ],
)
def test_arxiv_numbers(written: str, known: tuple[str, str]) -> None:
    assert arxiv_id(written) == known


def test_dois() -> None:
    assert normal_doi("doi:10.1063/1.3463169.") == normal_doi("https://dx.doi.org/10.1063/1.3463169")
    assert normal_doi("n/a") == ""


def test_order_of_revisions() -> None:
    ordered = ["", "A", "B", "Z", "AA", "1", "2", "Rev 10", "11"]
    assert sorted(reversed(ordered), key=revision_order) == ordered


@given(st.lists(st.integers(0, 999), min_size=1, max_size=20))
def test_numbered_revisions_order_by_value(numbers: list[int]) -> None:
    assert [int(r) for r in sorted(map(str, numbers), key=revision_order)] == sorted(numbers)


@pytest.mark.slow
def test_the_real_documents_as_a_feed(shared: Path, tmp_path: Path) -> None:
    feed = Feed.model_validate({"name": "docs", "source": "icms", "location": shared / "documents"})
    context = SourceContext(ZoneInfo("UTC"), BlobStore(tmp_path), Limits())
    changes = list(open_source(feed, context).changes(None))
    files = sum(path.is_file() for path in feed.location.rglob("*"))
    counts = Counter(type(change).__name__ for change in changes)
    assert files > 100
    assert counts == {"Upsert": files - 2, "Complete": files - 2, "Failure": 2, "Cursor": 1}
    broken = {Path(failure.place).name for failure in failures(changes)}
    assert broken == {"invalid.pdf", "unreadablemetadata.pdf"}
