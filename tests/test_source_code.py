"""Git checkouts and folders of scripts as records: what is tracked, as it stands on disk, and who wrote it when."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dulwich import porcelain
from dulwich.objects import Blob, Commit, ShaFile, Tree
from dulwich.repo import Repo
from dulwich.worktree import add_worktree

from aps_rag_pipeline.records import Link, Record
from aps_rag_pipeline.settings import Feed, Limits, SettingsError
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import (
    Change,
    Complete,
    Cursor,
    Failure,
    FeedError,
    Ignored,
    SourceContext,
    Upsert,
)
from aps_rag_pipeline.sources.checkouts import open_checkout, read_history
from aps_rag_pipeline.sources.code import CodeFiles
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.workshop import ADA, BEN, DAY, START, Workshop

TCL = (
    b'#!/bin/sh\n# \\\nexec oagtclsh "$0" "$@"\n\n# Corrects the orbit.\nproc APSCorrectOrbit {args} {\n  puts ok\n}\n'
)


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "src" / "ops-tools")
    yield shop
    shop.repo.close()


def source_of(location: Path, tmp_path: Path, **more: Any) -> CodeFiles:
    feed = Feed(name="code", source="code", location=location, **more)
    source = open_source(feed, SourceContext(ZoneInfo("America/Chicago"), BlobStore(tmp_path / "blobs"), Limits()))
    assert isinstance(source, CodeFiles)
    return source


def records(changes: list[Change]) -> dict[str, Record]:
    return {change.record.id: change.record for change in changes if isinstance(change, Upsert)}


def reasons(changes: list[Change]) -> dict[str, str]:
    return {change.place: change.reason for change in changes if isinstance(change, Ignored)}


def cursor_of(changes: list[Change]) -> Any:
    assert isinstance(changes[-1], Cursor)
    return changes[-1].value


def day(number: int) -> datetime:
    return datetime.fromtimestamp(START + number * DAY, UTC)


def test_a_tracked_file_is_a_record_with_its_history(tools: Workshop, tmp_path: Path) -> None:
    tools.commit({"tcl/correctOrbit": TCL}, 0)
    last = tools.commit({"tcl/correctOrbit": TCL + b"puts end\n"}, 5, BEN)
    (tools.root / "scratch.txt").write_text("not tracked")
    source = source_of(tmp_path / "src", tmp_path, url_template="https://git.aps.example/{repository}/{branch}/{path}")
    changes = list(source.changes(None))
    (record,) = records(changes).values()
    assert record.id == "ops-tools/tcl/correctOrbit"
    assert record.title == "tcl/correctOrbit"
    assert (record.created_at, record.modified_at, record.author) == (day(0), day(5), "Ben Booster")
    assert record.fields == {"language": "tcl", "repository": "ops-tools", "branch": "main", "commit": last}
    assert record.url == "https://git.aps.example/ops-tools/main/tcl/correctOrbit"
    assert record.access == ("public",)
    (part,) = record.parts
    assert (part.kind, part.locator, part.title) == ("code", "lines 1-9", "APSCorrectOrbit")
    assert part.text == (TCL + b"puts end").decode()
    assert Complete("ops-tools/tcl/correctOrbit") in changes


def test_a_checkout_may_be_the_location_itself(tools: Workshop, tmp_path: Path) -> None:
    tools.commit({"a.py": b"x = 1\n"}, 0)
    assert list(source_of(tools.root, tmp_path).inventory()) == ["ops-tools/a.py"]
    named = source_of(tools.root, tmp_path, options={"repository": "oag"})
    assert list(named.inventory()) == ["oag/a.py"]
    assert source_of(tools.root, tmp_path).check().detail.startswith("1 git checkouts; 1 files")


def test_packed_objects_and_refs_are_read(tools: Workshop, tmp_path: Path) -> None:
    for number in range(6):
        tools.commit({"a.py": b"x = %d\n" % number, f"b{number}.py": b"y = 2\n"}, number)
    porcelain.pack_refs(tools.repo, all=True)
    porcelain.repack(tools.repo)
    shutil.rmtree(tools.root / ".git" / "refs" / "heads")
    (tools.root / ".git" / "refs" / "heads").mkdir()
    found = records(list(source_of(tools.root, tmp_path).changes(None)))
    assert found["ops-tools/a.py"].created_at == day(0)
    assert found["ops-tools/a.py"].modified_at == day(5)
    assert found["ops-tools/b3.py"].modified_at == day(3)


def test_a_linked_worktree_is_read_through_its_git_file(tools: Workshop, tmp_path: Path) -> None:
    tools.commit({"a.py": b"x = 1\n"}, 2)
    add_worktree(tools.repo, tmp_path / "linked", branch="fix").close()
    assert (tmp_path / "linked" / ".git").is_file()
    (record,) = records(list(source_of(tmp_path / "linked", tmp_path).changes(None))).values()
    assert record.id == "linked/a.py"
    assert record.fields["branch"] == "fix"
    assert record.created_at == day(2)


def test_uncommitted_edits_are_what_is_read(tools: Workshop, tmp_path: Path) -> None:
    tools.commit({"a.py": b"old = 1\n", "b.py": b"same = 1\n", "c.py": b"crlf = 1\n"}, 0)
    tools.write({"a.py": b"new = 1\n", "c.py": b"crlf = 1\r\n", "d.py": b"staged = 1\n"})
    tools.stage("d.py")
    os.utime(tools.root / "a.py", (START + 9 * DAY, START + 9 * DAY))
    found = records(list(source_of(tools.root, tmp_path).changes(None)))
    edited = found["ops-tools/a.py"]
    assert edited.parts[0].text == "new = 1"
    assert edited.fields["uncommitted"] is True
    assert (edited.created_at, edited.modified_at) == (day(0), day(9))
    for name in ("b.py", "c.py"):
        assert "uncommitted" not in found[f"ops-tools/{name}"].fields
        assert found[f"ops-tools/{name}"].modified_at == day(0)
    staged = found["ops-tools/d.py"]
    assert staged.fields["uncommitted"] is True
    assert (staged.created_at, staged.author) == (None, "")


def test_a_sync_gives_only_what_moved(tools: Workshop, tmp_path: Path) -> None:
    tools.commit({"a.py": b"a = 1\n", "b.py": b"b = 1\n", "c.py": b"c = 1\n"}, 0)
    source = source_of(tmp_path / "src", tmp_path)
    first = list(source.changes(None))
    print_before = source.fingerprint()
    assert source.fingerprint() == print_before
    assert [type(c) for c in source.changes(cursor_of(first))] == [Cursor]

    tools.write({"a.py": b"a = 22\n"})
    assert source.fingerprint() != print_before
    edited = list(source.changes(cursor_of(first)))
    assert set(records(edited)) == {"ops-tools/a.py"}
    assert records(edited)["ops-tools/a.py"].author == "Ada Ring"

    # The commit touches no byte of the file, but who wrote it is now known.
    before = source.fingerprint()
    tools.commit({"a.py": b"a = 22\n"}, 3, BEN)
    assert source.fingerprint() != before
    committed = list(source.changes(cursor_of(edited)))
    assert records(committed)["ops-tools/a.py"].author == "Ben Booster"
    assert "uncommitted" not in records(committed)["ops-tools/a.py"].fields

    tools.commit({}, 4, gone=("b.py",))
    removed = list(source.changes(cursor_of(committed)))
    assert removed[:-1] == [Complete("ops-tools/b.py")]
    again = list(source.changes(cursor_of(removed), frozenset({"ops-tools/c.py"})))
    assert set(records(again)) == {"ops-tools/c.py"}


def test_a_rename_keeps_history_and_names_the_old_record(tools: Workshop, tmp_path: Path) -> None:
    body = b"".join(b"line %d of the script\n" % n for n in range(40))
    tools.commit({"old/name.tcl": body, "other.py": b"x = 1\n"}, 0)
    (tools.root / "mid").mkdir()
    tools.commit({"mid/name.tcl": body}, 4, BEN, gone=("old/name.tcl",))
    tools.commit({"new/name.tcl": body + b"and one more\n"}, 7, BEN, gone=("mid/name.tcl",))
    found = records(list(source_of(tools.root, tmp_path).changes(None)))
    renamed = found["ops-tools/new/name.tcl"]
    assert (renamed.created_at, renamed.modified_at) == (day(0), day(7))
    assert renamed.fields["former_ids"] == ["ops-tools/mid/name.tcl", "ops-tools/old/name.tcl"]
    assert Link("supersedes", "ops-tools/old/name.tcl", "renamed") in renamed.links
    assert found["ops-tools/other.py"].links == ()


def test_what_a_merge_brings_keeps_its_own_author(tools: Workshop, tmp_path: Path) -> None:
    base = tools.commit({"a.py": b"a = 1\n"}, 0)
    main = tools.commit({"b.py": b"b = 1\n"}, 2, BEN)
    tree = tools.repo[main.encode()]
    assert isinstance(tree, Commit)
    side = Commit()
    side.tree, side.parents = tools.repo[base.encode()].tree, [base.encode()]
    side.author = side.committer = ADA
    side.author_time = side.commit_time = START + DAY
    side.author_timezone = side.commit_timezone = 0
    side.message = b"side"
    merge = side.copy()
    merge.tree, merge.parents, merge.author_time = tree.tree, [main.encode(), side.id], START + 3 * DAY
    merge.commit_time = START + 3 * DAY
    for commit in (side, merge):
        tools.repo.object_store.add_object(commit)
    tools.repo.refs[b"refs/heads/main"] = merge.id
    found = records(list(source_of(tools.root, tmp_path).changes(None)))
    assert (found["ops-tools/b.py"].author, found["ops-tools/b.py"].modified_at) == ("Ben Booster", day(2))


def test_what_is_no_text_to_read_is_ignored_with_its_reason(tools: Workshop, tmp_path: Path) -> None:
    tools.commit(
        {
            "ok.py": b"x = 1\n",
            "__init__.py": b"",
            "blank.txt": b"\n \n",
            "logo.png": b"\x89PNG\r\n\x1a\n\x00\x00",
            "big.mat": b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n",
            "data.bin": b"/annex/objects/SHA256-s1--1\n",
            "web/app.min.js": b"function a(){}\n",
            "web/bundle.js": b"var a=1;" * 1000,
            "poetry.lock": b"[[package]]\n",
            "parser.c": b"/* A Bison parser, generated by GNU Bison.\n   DO NOT EDIT. */\nint x;\n",
            "table.txt": b"1 2 3\n" * 400_000,
            "gone.py": b"x = 2\n",
        },
        0,
    )
    (tools.root / "gone.py").unlink()
    (tools.root / "link.py").symlink_to("ok.py")
    tools.stage("link.py")
    index = tools.repo.open_index()
    entry = index[b"ok.py"]
    index[b"vendor/epics"] = type(entry)(0, 0, 0, 0, 0o160000, 0, 0, 0, b"1" * 40)
    index[b"../../etc/passwd"] = type(entry)(0, 0, 0, 0, 0o100644, 0, 0, 0, entry.sha)
    index.write()
    changes = list(source_of(tools.root, tmp_path).changes(None))
    assert set(records(changes)) == {"ops-tools/ok.py"}
    assert [change for change in changes if isinstance(change, Failure)] == []
    why = {place.removeprefix("ops-tools/"): reason for place, reason in reasons(changes).items()}
    expected = {
        "__init__.py": "empty", "blank.txt": "empty", "logo.png": "binary", "big.mat": "LFS", "data.bin": "annex",
        "web/app.min.js": "minified", "web/bundle.js": "minified", "poetry.lock": "lock file", "parser.c": "generated",
        "table.txt": "data, not code", "gone.py": "not in the working tree", "link.py": "symbolic link",
        "vendor/epics": "submodule", "../../etc/passwd": "leads out",
    }  # fmt: skip
    assert set(why) == set(expected)
    for name, mark in expected.items():
        assert mark in why[name], name


def test_a_tracked_folder_replaced_by_a_link_is_not_followed(tools: Workshop, tmp_path: Path) -> None:
    tools.commit({"lib/a.py": b"x = 1\n", "b.py": b"y = 1\n"}, 0)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_text("secret = 1\n")
    shutil.rmtree(tools.root / "lib")
    (tools.root / "lib").symlink_to(outside)
    changes = list(source_of(tools.root, tmp_path).changes(None))
    assert set(records(changes)) == {"ops-tools/b.py"}
    assert reasons(changes) == {"ops-tools/lib/a.py": "a link that leads out of the checkout"}


def test_odd_names_and_encodings_are_kept(tools: Workshop, tmp_path: Path) -> None:
    tools.commit(
        {"räume, copy 2.py": "größe = 'µm'\n".encode("cp1252"), "bom.py": b"\xef\xbb\xbfx = 1\r\ny = 2\r\n"}, 0
    )
    source = source_of(tools.root, tmp_path, url_template="https://x/{id}", encoding="cp1252")
    found = records(list(source.changes(None)))
    assert found["ops-tools/räume, copy 2.py"].parts[0].text == "größe = 'µm'"
    assert found["ops-tools/räume, copy 2.py"].url == "https://x/ops-tools/r%C3%A4ume%2C%20copy%202.py"
    assert found["ops-tools/bom.py"].parts[0].text == "x = 1\ny = 2"


def test_several_checkouts_and_loose_scripts_in_one_folder(tools: Workshop, tmp_path: Path) -> None:
    tools.commit({"a.py": b"x = 1\n"}, 0)
    other = Workshop(tmp_path / "src" / "rf" / "llrf")
    other.commit({"a.py": b"y = 1\n"}, 1)
    other.repo.close()
    loose = tmp_path / "src" / "scripts"
    loose.mkdir()
    (loose / "fill.tcl").write_text("proc fill {} {}\n")
    os.utime(loose / "fill.tcl", (START, START))
    found = records(list(source_of(tmp_path / "src", tmp_path).changes(None)))
    assert set(found) == {"ops-tools/a.py", "rf/llrf/a.py", "scripts/fill.tcl"}
    assert found["rf/llrf/a.py"].fields["repository"] == "rf/llrf"
    assert found["scripts/fill.tcl"].fields == {"language": "tcl"}
    assert (found["scripts/fill.tcl"].created_at, found["scripts/fill.tcl"].modified_at) == (None, day(0))


def test_a_damaged_checkout_costs_one_failure_and_nothing_of_the_others(tools: Workshop, tmp_path: Path) -> None:
    tools.commit({"a.py": b"x = 1\n"}, 0)
    other = Workshop(tmp_path / "src" / "broken")
    other.commit({"b.py": b"y = 1\n"}, 1)
    other.repo.close()
    source = source_of(tmp_path / "src", tmp_path)
    first = list(source.changes(None))
    (other.root / ".git" / "index").write_bytes(b"DIRC garbage")
    second = list(source.changes(cursor_of(first)))
    (failure,) = [change for change in second if isinstance(change, Failure)]
    assert (failure.unit, failure.permanent) == ("broken", False)
    assert "cannot be read" in failure.reason
    assert "git fsck" in failure.remedy
    assert not any(isinstance(change, Complete) for change in second)
    assert "broken/b.py" in cursor_of(second)["units"]


def test_a_feed_that_is_one_damaged_checkout_is_an_outage(tools: Workshop, tmp_path: Path) -> None:
    tools.commit({"a.py": b"x = 1\n"}, 0)
    (tools.root / ".git" / "index").write_bytes(b"DIRC garbage")
    source = source_of(tools.root, tmp_path)
    with pytest.raises(FeedError, match="git checkout cannot be read"):
        source.fingerprint()
    with pytest.raises(FeedError, match="no such file or folder"):
        source_of(tmp_path / "nowhere", tmp_path).check()


def test_a_checkout_without_its_index_is_no_emptiness(tools: Workshop, tmp_path: Path) -> None:
    tools.commit({"a.py": b"x = 1\n"}, 0)
    (tools.root / ".git" / "index").unlink()
    with pytest.raises(FeedError, match="nothing is checked out"):
        list(source_of(tools.root, tmp_path).changes(None))


def test_lost_objects_cost_the_history_and_not_the_files(tools: Workshop, tmp_path: Path) -> None:
    first = tools.commit({"a.py": b"x = 1\n"}, 0)
    tools.commit({"b.py": b"y = 1\n"}, 1)
    (tools.root / ".git" / "objects" / first[:2] / first[2:]).unlink()
    os.utime(tools.root / "a.py", (START + 6 * DAY, START + 6 * DAY))
    found = records(list(source_of(tools.root, tmp_path).changes(None)))
    assert set(found) == {"ops-tools/a.py", "ops-tools/b.py"}
    assert (found["ops-tools/a.py"].created_at, found["ops-tools/a.py"].modified_at) == (None, day(6))


def test_a_shallow_clone_claims_no_creation_time(tools: Workshop, tmp_path: Path) -> None:
    tools.commit({"a.py": b"x = 1\n"}, 0)
    cut = tools.commit({"b.py": b"y = 1\n"}, 1)
    tools.commit({"c.py": b"z = 1\n"}, 2)
    (tools.root / ".git" / "shallow").write_text(cut + "\n")
    found = records(list(source_of(tools.root, tmp_path).changes(None)))
    assert {name[-4:]: record.created_at for name, record in found.items()} == {
        "a.py": None, "b.py": None, "c.py": day(2),
    }  # fmt: skip
    assert read_history(open_checkout(tools.root, "x"))[1] == "the clone is shallow"


def test_a_repository_without_a_commit_and_a_bare_one(tools: Workshop, tmp_path: Path) -> None:
    tools.write({"a.py": b"x = 1\n"})
    tools.stage("a.py")
    (tmp_path / "src" / "store.git").mkdir()
    Repo.init_bare(str(tmp_path / "src" / "store.git")).close()
    changes = list(source_of(tmp_path / "src", tmp_path).changes(None))
    (record,) = records(changes).values()
    assert record.fields == {"language": "python", "repository": "ops-tools", "branch": "main", "uncommitted": True}
    assert reasons(changes) == {"store.git": "a bare repository has no files; check it out"}


def copied(tree: ShaFile) -> Tree:
    copy = tree.copy()
    assert isinstance(copy, Tree)
    return copy


def test_a_history_of_2000_commits_is_walked_in_bounded_time(tools: Workshop) -> None:
    """The trees share all but one path; about 1.5 ms a commit is usual."""
    tools.commit({f"d{n % 10}/f{n}.py": b"x = 1\n" for n in range(100)}, 0)
    store = tools.repo.object_store
    head = tools.repo.head()
    made: dict[bytes, ShaFile] = {}
    root = copied(store[store[head].tree])
    for number in range(2000):
        blob = Blob.from_string(b"# %d\n" % number)
        folder_name, file_name = b"d%d" % (number % 10), b"f%d.py" % (number % 100)
        old = root[folder_name][1]
        folder = copied(made.get(old) or store[old])
        folder[file_name] = (0o100644, blob.id)
        root = copied(root)
        root[folder_name] = (0o040000, folder.id)
        commit = Commit()
        commit.tree, commit.parents = root.id, [head]
        commit.author = commit.committer = BEN
        commit.author_time = commit.commit_time = START + DAY + number
        commit.author_timezone = commit.commit_timezone = 0
        commit.message = b"edit"
        made |= {thing.id: thing for thing in (blob, folder, root, commit)}
        head = commit.id
    store.add_objects([(thing, None) for thing in made.values()])
    tools.repo.refs[b"refs/heads/main"] = head
    checkout = open_checkout(tools.root, "ops-tools")
    start = time.process_time()
    history, problem = read_history(checkout)
    assert time.process_time() - start < 20
    assert (problem, len(history)) == ("", 100)
    assert all(entry.created_at == day(0) and entry.author == "Ben Booster" for entry in history.values())
    assert history[b"d9/f99.py"].modified_at == datetime.fromtimestamp(START + DAY + 1999, UTC)
    cut, problem = read_history(checkout, limit=50)
    assert problem == "only the newest 50 commits were looked at"
    assert sum(1 for entry in cut.values() if entry.commit) == 50


def test_wrong_options_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="max_text_kb must be a whole number"):
        source_of(tmp_path, tmp_path, options={"max_text_kb": "many"})
    with pytest.raises(SettingsError, match="url_template cannot be filled in"):
        source_of(tmp_path, tmp_path, url_template="https://x/{file}")


def test_notebooks_are_read_by_cell(tmp_path: Path) -> None:
    (tmp_path / "plot.ipynb").write_text(
        '{"cells": [{"cell_type": "markdown", "source": ["# Orbit\\n", "text"]},'
        '{"cell_type": "code", "source": "plot(x)", "outputs": [{"data": {"image/png": "AAAA"}}]}]}'
    )
    (tmp_path / "bad.ipynb").write_text('{"cells": 3}')
    found = records(list(source_of(tmp_path, tmp_path).changes(None)))
    assert [(p.kind, p.locator, p.text) for p in found["plot.ipynb"].parts] == [
        ("prose", "cell 1", "# Orbit\ntext"), ("code", "cell 2", "plot(x)"),
    ]  # fmt: skip
    assert found["bad.ipynb"].parts[0].text == '{"cells": 3}'


def test_a_screen_begins_with_what_it_shows(tmp_path: Path) -> None:
    (tmp_path / "bpm.adl").write_text(
        'file {\n\tname="/home/ops/bpm.adl"\n\tversion=030122\n}\n'
        'text {\n\tobject {\n\t\ty=90\n\t}\n\ttextix="Horizontal"\n}\n'
        'text {\n\tobject {\n\t\ty=5\n\t}\n\ttextix="Sector 3 BPMs"\n}\n'
        '"text update" {\n\tmonitor {\n\t\tchan="S3:BPM1:XM"\n\t}\n\tlabel="outline"\n}\n'
        '"text entry" {\n\tcontrol {\n\t\tctrl="$(P)SetpointAO"\n\t}\n}\n'
        '"related display" {\n\tdisplay[0] {\n\t\tlabel="Details"\n\t\tname="bpmDetail.adl"\n\t}\n}\n'
    )
    (record,) = records(list(source_of(tmp_path, tmp_path).changes(None))).values()
    head, *rest = record.parts
    assert (head.kind, head.title) == ("prose", "Sector 3 BPMs")
    assert head.text.split("\n") == [
        "MEDM screen bpm.adl: Sector 3 BPMs",
        "Process variables: S3:BPM1:XM, $(P)SetpointAO",
        "Texts: Sector 3 BPMs; Horizontal; Details",
        "Opens: bpmDetail.adl",
    ]
    assert record.links == (Link("process_variable", "S3:BPM1:XM"),)
    assert all(part.kind == "code" and part.title for part in rest)
    assert "\n".join(part.text for part in rest) == (tmp_path / "bpm.adl").read_text().rstrip("\n")


def test_records_of_a_database_are_linked(tmp_path: Path) -> None:
    (tmp_path / "rf.db").write_text('record(ai, "RF:Power") {\n}\nrecord(ao, "$(P)Set") {\n}\nrecord(bo,RF:On) {\n}\n')
    (record,) = records(list(source_of(tmp_path, tmp_path).changes(None))).values()
    assert [link.target for link in record.links] == ["RF:Power", "RF:On"]
    assert record.parts[0].title == "RF:Power, $(P)Set, RF:On"


def test_real_screens_and_databases_as_a_repository(shared: Path, tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "medm")
    shutil.copytree(shared / "displays" / "medm", shop.root, dirs_exist_ok=True)
    names = [
        str(p.relative_to(shop.root)) for p in sorted(shop.root.rglob("*")) if p.is_file() and ".git" not in p.parts
    ]
    shop.stage(*names)
    shop.commit({}, 0)
    shop.repo.close()
    source = source_of(shop.root, tmp_path)
    changes = list(source.changes(None))
    found = records(changes)
    kinds = Counter(type(change).__name__ for change in changes)
    assert len(found) + kinds["Ignored"] + kinds["Failure"] == len(names)
    assert (kinds["Upsert"], kinds["Ignored"], kinds["Failure"]) == (101, 75, 0)
    assert set(reasons(changes).values()) == {"binary"}
    assert all(record.created_at == day(0) and record.author == "Ada Ring" for record in found.values())
    screen = found["medm/tests/test_Meter.adl"]
    assert screen.parts[0].title == "Meter Parity Harness: MEDM vs QtEDM (visual + behavior)"
    assert Link("process_variable", "meter:fast:alpha") in screen.links
    for name, record in found.items():
        text = (shop.root / name.removeprefix("medm/")).read_text("utf-8")
        lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
        body = [part for part in record.parts if part.locator]
        assert [line for part in body for line in part.text.split("\n") if line.strip()] == lines, name
    assert [type(change) for change in source.changes(cursor_of(changes)) if not isinstance(change, Ignored)] == [
        Cursor
    ]


def test_the_sdds_manuals_as_loose_files(shared: Path, tmp_path: Path) -> None:
    changes = list(source_of(shared / "sdds", tmp_path).changes(None))
    files = sum(1 for path in (shared / "sdds").rglob("*") if path.is_file())
    kinds = Counter(type(change).__name__ for change in changes)
    assert kinds["Upsert"] + kinds["Ignored"] + kinds["Failure"] == files
    assert kinds["Failure"] == 0
    assert set(reasons(changes).values()) == {"binary"}
