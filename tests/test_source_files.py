"""Folders as people leave them: loops, links, odd names, empty, huge and unreadable files cost one message each."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.sources.base import Complete, Cursor, Failure, FeedError, Ignored, Upsert
from aps_rag_pipeline.sync import pipeline
from aps_rag_pipeline.sync.apply import apply_spool
from aps_rag_pipeline.sync.fetch import fetch, reader


class Pages:
    """A wiki feed on a folder."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "wiki"
        self.folder.mkdir()
        (self.folder / "Home.md").write_text("# Home\n\nWelcome to the control room.\n")
        self.config: dict[str, object] = {
            "home": "home",
            "models": {"embedding": "test:hash-16"},
            "feeds": [{"name": "wiki", "source": "wiki", "location": "wiki"}],
        }
        self.file = root / "facility.yaml"

    @property
    def settings(self) -> Settings:
        return Settings.build(self.config, self.file)

    def changes(self, cursor: object = None, retry: frozenset[str] = frozenset()) -> list[object]:
        settings = self.settings
        with pipeline.open_workspace(settings) as workspace:
            return list(reader(settings, settings.feeds[0], workspace.home.blobs).changes(cursor, retry))


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


def ids(changes: list[object]) -> list[str]:
    return [change.record.id for change in changes if isinstance(change, Upsert)]


def failures(changes: list[object]) -> dict[str, str]:
    return {change.place: change.reason for change in changes if isinstance(change, Failure)}


def ignored(changes: list[object]) -> dict[str, str]:
    return {change.place: change.reason for change in changes if isinstance(change, Ignored)}


def cursor(changes: list[object]) -> object:
    (last,) = [change.value for change in changes if isinstance(change, Cursor)]
    return last


def test_loops_and_links_are_walked_once_and_never_out_of_the_folder(pages: Pages, tmp_path: Path) -> None:
    (pages.folder / "sub").mkdir()
    (pages.folder / "sub" / "Page.md").write_text("text")
    (pages.folder / "sub" / "loop").symlink_to(pages.folder)
    (pages.folder / "self").symlink_to("self")
    (pages.folder / "nowhere.md").symlink_to("missing.md")
    (tmp_path / "secret.md").write_text("not part of the wiki")
    (pages.folder / "out.md").symlink_to(tmp_path / "secret.md")
    os.mkfifo(pages.folder / "pipe.md")
    changes = pages.changes()
    assert sorted(ids(changes)) == ["Home", "sub/Page"]
    assert set(ignored(changes)) | set(failures(changes)) == {"sub/loop", "self", "nowhere.md", "out.md", "pipe.md"}
    assert "leads out" in ignored(changes)["out.md"]


def test_names_with_blanks_commas_and_other_alphabets_stay_what_they_are(pages: Pages) -> None:
    names = ["RF & klystrons, part 2.md", "Größe (alt).md", "クライストロン.md", "a'b\"c.md"]
    for name in names:
        (pages.folder / name).write_text("some text")
    assert sorted(ids(pages.changes())) == sorted(["Home", *(name.removesuffix(".md") for name in names)])
    with open(os.fsencode(pages.folder) + b"/bad-\xff.md", "w") as stream:
        stream.write("text")
    assert "bad-\\xff" in ids(pages.changes())


def test_leftovers_and_other_kinds_are_counted_not_read(pages: Pages) -> None:
    (pages.folder / "~$Home.md").write_text("lock")
    (pages.folder / ".git").mkdir()
    (pages.folder / ".git" / "config.md").write_text("x")
    (pages.folder / "movie.avi").write_bytes(b"\x00")
    changes = pages.changes()
    assert ids(changes) == ["Home"]
    assert set(ignored(changes)) == {"~$Home.md", "movie.avi"}


def test_empty_and_too_large_files_say_so_and_what_helps(pages: Pages) -> None:
    (pages.folder / "Empty.md").write_text(" \n")
    (pages.folder / "Huge.md").write_text("x" * 2_000_000)
    pages.config["limits"] = {"max_file_mb": 1}
    changes = pages.changes()
    assert ids(changes) == ["Home"]
    assert "empty" in failures(changes)["Empty.md"]
    assert "max_file_mb" in failures(changes)["Huge.md"]
    assert all(change.remedy and change.permanent for change in changes if isinstance(change, Failure))


def test_a_text_of_50_mb_is_one_failure_that_names_the_limit(pages: Pages) -> None:
    line = "The operator wrote down every sample of every channel of the whole run. " * 10 + "\n\n"
    (pages.folder / "Dump.txt").write_text(line * (50_000_000 // len(line)))
    pages.config["feeds"] = [{"name": "documents", "source": "icms", "location": "wiki"}]
    settings = pages.settings
    with pipeline.open_workspace(settings) as workspace:
        (report,) = fetch(workspace, settings.feeds)
        assert report.counts["read"] == 1
        (failure,) = report.failures
        assert failure.place == "Dump.txt"
        assert "max_text_mb" in failure.reason
        apply_spool(workspace)
        assert workspace.catalog.value("select count(*) from records where removed = 0") == 1
        assert workspace.catalog.value("select count(*) from dead_letters") == 1


def test_a_bomb_costs_one_failure(tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    with zipfile.ZipFile(folder / "report.docx", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("[Content_Types].xml", "<Types/>")
        bomb.writestr("word/document.xml", b"<a>" + b" " * 300_000_000)
    (folder / "note.txt").write_text("the rest goes on")
    values = {
        "home": "home",
        "limits": {"max_unpacked_mb": 50},
        "feeds": [{"name": "documents", "source": "icms", "location": "documents"}],
    }
    settings = Settings.build(values, tmp_path / "facility.yaml")
    with pipeline.open_workspace(settings) as workspace:
        (report,) = fetch(workspace, settings.feeds)
    assert report.counts["read"] == 1
    (failure,) = report.failures
    assert "report.docx" in failure.place
    assert failure.permanent
    assert failure.remedy


def test_only_what_moved_is_read_again(pages: Pages) -> None:
    (pages.folder / "Other.md").write_text("other")
    first = cursor(pages.changes())
    assert [type(change) for change in pages.changes(first)] == [Cursor]
    (pages.folder / "Other.md").write_text("changed")
    (pages.folder / "Home.md").unlink()
    changes = pages.changes(first)
    assert ids(changes) == ["Other"]
    assert {change.unit for change in changes if isinstance(change, Complete)} == {
        next(unit for unit in first["units"] if unit.startswith("Home")),
        next(unit for unit in first["units"] if unit.startswith("Other")),
    }
    retried = pages.changes(cursor(changes), frozenset(cursor(changes)["units"]))
    assert ids(retried) == ["Other"]


def test_the_fingerprint_moves_with_the_files(pages: Pages) -> None:
    settings = pages.settings
    with pipeline.open_workspace(settings) as workspace:
        source = reader(settings, settings.feeds[0], workspace.home.blobs)
        first = source.fingerprint()
        assert source.fingerprint() == first
        (pages.folder / "New.md").write_text("new")
        assert source.fingerprint() != first


def test_an_empty_folder_is_an_outage_once_there_was_something(pages: Pages) -> None:
    first = cursor(pages.changes())
    (pages.folder / "Home.md").unlink()
    with pytest.raises(FeedError, match="empty"):
        pages.changes(first)
    pages.folder.rmdir()
    with pytest.raises(FeedError, match="no such file or folder"):
        pages.changes(first)
