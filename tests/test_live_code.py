"""Repositories by their addresses: clones that are whole or not there, histories carried on, and servers that fail."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dulwich.objects import Blob, Commit, Tree, hex_to_sha
from dulwich.pack import write_pack
from dulwich.refs import HEADREF, Ref
from dulwich.repo import Repo
from werkzeug import Request, Response

from aps_rag_pipeline.records import FORMER_IDS, Record
from aps_rag_pipeline.settings import Credentials, Feed, Limits, Network, SecretPlace, SettingsError
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
from aps_rag_pipeline.sources.repositories import history
from aps_rag_pipeline.sources.repositories.clones import Clone
from aps_rag_pipeline.sources.repositories.feed import GitClones
from aps_rag_pipeline.sources.repositories.peeking import peek
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.serving import FaultyServer, serving
from tests.workshop import BEN, DAY, START, Workshop, git_server

QUICK = Network(timeout_s=0.5, deadline_s=3, attempts=3, backoff_s=0.001)
MAIN = Ref(b"refs/heads/main")
SCRIPT = b"".join(b"puts {step %d of the ramp}\n" % number for number in range(30))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    made = Workshop(tmp_path / "src" / "ops-tools")
    made.commit({"a.py": b"a = 1\n", "lib/ramp.tcl": SCRIPT}, 0)
    yield made
    made.repo.close()


@pytest.fixture
def server(shop: Workshop) -> Iterator[FaultyServer]:
    with serving(git_server({"ops-tools.git": shop.repo})) as running:
        yield running


def source_of(tmp_path: Path, url: str = "", network: Network = QUICK, **more: Any) -> GitClones:
    feed = Feed(name="code", source="code", form="git", url=url, **more)
    context = SourceContext(
        ZoneInfo("America/Chicago"), BlobStore(tmp_path / "blobs"), Limits(), network, tmp_path / "scratch"
    )
    source = open_source(feed, context)
    assert isinstance(source, GitClones)
    return source


def read(source: GitClones, cursor: Any = None) -> tuple[list[Change], Any]:
    """The changes of a sync without its cursor, and the cursor as the catalog gives it back."""
    *changes, last = source.changes(cursor)
    assert isinstance(last, Cursor)
    return changes, json.loads(json.dumps(last.value))


def records(changes: list[Change]) -> dict[str, Record]:
    return {change.record.id: change.record for change in changes if isinstance(change, Upsert)}


def gone(changes: list[Change]) -> set[str]:
    units = {change.unit for change in changes if isinstance(change, Complete)}
    return units - {change.unit for change in changes if isinstance(change, Upsert | Ignored | Failure)}


def former(record: Record) -> Any:
    return record.fields.get(FORMER_IDS)


def head_of(repo: Repo) -> Commit:
    commit = repo[repo.head()]
    assert isinstance(commit, Commit)
    return commit


def clone_in(tmp_path: Path) -> Path:
    (found,) = [path for path in (tmp_path / "scratch").iterdir() if path.is_dir()]
    return found


# what is read


def test_a_clone_gives_the_records_that_a_checkout_gives(tmp_path: Path, shop: Workshop) -> None:
    shop.commit({"räume, copy 2.py": "x = 'µm'\n".encode(), "rf.db": b'record(ai, "RF:Power") {\n}\n'}, 1, BEN)
    shop.commit({"lib/ramp2.tcl": SCRIPT + b"# more\n"}, 2, gone=("lib/ramp.tcl",))
    shop.commit(
        {"logo.png": b"\x89PNG\0\0", "poetry.lock": b"x\n", "big.mat": b"version https://git-lfs.github.com/spec/v1"}, 3
    )
    more: dict[str, Any] = {"url_template": "https://git.example/{repository}/{branch}/{path}", "access": ("ops",)}
    files = open_source(
        Feed(name="code", source="code", location=shop.root, **more),
        SourceContext(ZoneInfo("UTC"), BlobStore(tmp_path / "blobs"), Limits()),
    )
    clone, _ = read(source_of(tmp_path, str(shop.root), **more))
    checkout = list(files.changes(None))
    assert records(clone) == records(checkout)
    assert len(records(clone)) == 4
    assert former(records(clone)["ops-tools/lib/ramp2.tcl"]) == ["ops-tools/lib/ramp.tcl"]
    ignored = {change for change in clone if isinstance(change, Ignored)}
    assert ignored == {change for change in checkout if isinstance(change, Ignored)}
    assert len(ignored) == 3


def test_the_demo_facilitys_checkouts_cloned(tmp_path: Path) -> None:
    from aps_rag_pipeline.demo.write import write

    write(tmp_path / "demo", seed=7, records=300)
    folder = next(path for path in (tmp_path / "demo").rglob("code") if path.is_dir())
    files = open_source(
        Feed(name="code", source="code", location=folder),
        SourceContext(ZoneInfo("UTC"), BlobStore(tmp_path / "blobs"), Limits()),
    )
    named = [{"url": path.name} for path in sorted(folder.iterdir()) if path.is_dir()]
    clones = source_of(tmp_path, str(folder), options={"repositories": named})
    changes, _ = read(clones)
    assert records(changes) == records(list(files.changes(None)))
    assert len(records(changes)) > 10


def test_a_second_sync_downloads_and_changes_nothing(tmp_path: Path, server: FaultyServer) -> None:
    source = source_of(tmp_path, f"{server.url}/ops-tools.git")
    print_before = source.fingerprint()
    changes, cursor = read(source)
    assert set(records(changes)) == {"ops-tools/a.py", "ops-tools/lib/ramp.tcl"}
    assert server.headers[-1]["USER_AGENT"].startswith("git/2.0 aps-rag")
    server.forget()
    assert read(source, cursor) == ([], cursor)
    assert server.asked("POST") == []
    assert source.fingerprint() == print_before


def test_what_moved_is_read_and_nothing_else(tmp_path: Path, shop: Workshop, server: FaultyServer) -> None:
    source = source_of(tmp_path, f"{server.url}/ops-tools.git")
    _, cursor = read(source)
    prints = [source.fingerprint()]
    first = records(read(source)[0])

    def step(files: dict[str, bytes], day: int, gone: tuple[str, ...] = ()) -> list[Change]:
        nonlocal cursor
        shop.commit(files, day, BEN, gone)
        prints.append(source.fingerprint())
        server.forget()
        changes, cursor = read(source, cursor)
        assert len(server.asked("POST")) == 1
        return changes

    assert set(records(step({"a.py": b"a = 2\n"}, 1))) == {"ops-tools/a.py"}
    assert set(records(step({"late.py": b"l = 1\n"}, -50))) == {"ops-tools/late.py"}
    assert gone(step({}, 2, ("late.py",))) == {"ops-tools/late.py"}
    back = records(step({"a.py": b"a = 1\n"}, 3))["ops-tools/a.py"]
    assert (back.parts, back.author) == (first["ops-tools/a.py"].parts, "Ben Booster")
    assert back.created_at == first["ops-tools/a.py"].created_at
    assert len(set(prints)) == len(prints)
    assert len(list((clone_in(tmp_path) / "objects" / "pack").glob("*.pack"))) == 5


def test_everything_read_again_takes_the_history_along(tmp_path: Path, shop: Workshop) -> None:
    source = source_of(tmp_path, str(shop.root))
    shop.commit({"lib/ramp2.tcl": SCRIPT}, 1, gone=("lib/ramp.tcl",))
    changes, cursor = read(source)
    again, after = read(source, source.again(cursor))
    assert records(again) == records(changes)
    assert after == cursor
    shutil.rmtree(tmp_path / "scratch")  # may be fetched again at any time
    assert read(source, cursor) == ([], cursor)


def test_what_is_no_text_to_read_is_counted_with_its_reason(tmp_path: Path, shop: Workshop) -> None:
    shop.commit(
        {
            "__init__.py": b"", "logo.png": b"\x89PNG\0\0", "web/app.min.js": b"f()\n", "table.txt": b"1 2 3\n" * 9000,
            "big.mat": b"version https://git-lfs.github.com/spec/v1\n", "web/b.js": b"var a=1;" * 1000,
            "parser.c": b"/* generated by Bison. DO NOT EDIT. */\nint x;\n", "skip/me.py": b"x = 1\n",
        },
        1,
    )  # fmt: skip
    (shop.root / "link.py").symlink_to("a.py")
    shop.stage("link.py")
    index = shop.repo.open_index()
    entry = index[b"a.py"]
    index[b"vendor/epics"] = type(entry)(0, 0, 0, 0, 0o160000, 0, 0, 0, b"1" * 40)
    index.write()
    shop.commit({}, 2)
    changes, _ = read(source_of(tmp_path, str(shop.root), exclude=("*/skip/*",), options={"max_text_kb": 50}))
    assert set(records(changes)) == {"ops-tools/a.py", "ops-tools/lib/ramp.tcl"}
    why = {c.place.removeprefix("ops-tools/"): c.reason for c in changes if isinstance(c, Ignored)}
    expected = {
        "__init__.py": "empty", "logo.png": "binary", "web/app.min.js": "minified", "table.txt": "data, not code",
        "big.mat": "LFS", "web/b.js": "minified", "parser.c": "generated", "link.py": "symbolic link",
        "vendor/epics": "submodule",
    }  # fmt: skip
    assert why.keys() == expected.keys()
    assert all(mark in why[name] for name, mark in expected.items())


def test_a_file_above_the_limit_is_a_failure_of_its_own(tmp_path: Path, shop: Workshop) -> None:
    shop.commit({"huge.txt": b"line of text\n" * 10}, 1)
    source = source_of(tmp_path, str(shop.root))
    source.context = SourceContext(
        source.context.zone, source.context.blobs, Limits(max_file_mb=0.0001), QUICK, source.context.scratch
    )
    changes, cursor = read(source)
    failed = {c.item: c for c in changes if isinstance(c, Failure)}
    assert failed.keys() == {"ops-tools/huge.txt", "ops-tools/lib/ramp.tcl"}
    assert failed["ops-tools/huge.txt"].permanent
    assert set(records(changes)) == {"ops-tools/a.py"}
    assert read(source, cursor) == ([], cursor), "only a change of the file can help"


def test_a_file_above_the_limit_is_not_even_unpacked(
    tmp_path: Path, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros, text = b"\0" * 3_000_000, b"line of text\n" * 200_000
    shop.commit({"zeros.dat": zeros, "long.txt": text, "short.txt": b"line of text\n" * 5000}, 1)
    source = source_of(tmp_path, str(shop.root))
    source.context = SourceContext(
        source.context.zone, source.context.blobs, Limits(max_file_mb=1), QUICK, source.context.scratch
    )
    source.reader.max_text_kb = 10_000
    loaded: list[int] = []
    load = Clone.blob

    def watched(clone: Clone, sha: str) -> bytes:
        data = load(clone, sha)
        loaded.append(len(data))
        return data

    monkeypatch.setattr(Clone, "blob", watched)
    changes, _ = read(source)
    assert max(loaded) < 100_000
    assert {c.place: c.reason for c in changes if isinstance(c, Ignored)} == {"ops-tools/zeros.dat": "binary"}
    (failure,) = (c for c in changes if isinstance(c, Failure))
    assert (failure.item, failure.reason) == ("ops-tools/long.txt", "3 MB, more than limits.max_file_mb (1)")
    assert "ops-tools/short.txt" in records(changes)


def test_sizes_are_told_from_the_heads_of_packs(tmp_path: Path) -> None:
    lines = [b"%d of %d\n" % (number, number * number) for number in range(3000)]
    texts = [*(b"".join(lines[first:]) for first in range(5)), b"", b"x" * 20]
    with contextlib.closing(Repo.init_bare(str(tmp_path / "r"), mkdir=True)) as repo:
        blobs = [Blob.from_string(text) for text in texts]
        write_pack(str(tmp_path / "r/objects/pack/pack-1"), blobs, repo.object_format, deltify=True)
        found = [peek(repo.object_store.packs, hex_to_sha(blob.id), 50) for blob in blobs]
        assert peek(repo.object_store.packs, hex_to_sha(Blob.from_string(b"y").id), 50) is None
    sure = [each for each in found if each is not None]
    assert [each.size for each in sure] == [len(text) for text in texts]
    assert all(each.head in (b"", text[:50]) for each, text in zip(sure, texts, strict=True))
    differences = [each for each, text in zip(sure, texts, strict=True) if text and not each.head]
    assert differences
    assert {each.largest for each in differences} <= {len(text) for text in texts}


def test_a_tree_that_unfolds_without_end_is_refused(
    tmp_path: Path, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST_FILES", 5000)
    store = shop.repo.object_store
    blob = Blob.from_string(b"x = 1\n")
    mode, held = 0o100644, blob.id
    made: list[Any] = [blob]
    for _ in range(9):
        tree = Tree()
        for number in range(10):
            tree.add(b"d%d" % number, mode, held)
        made.append(tree)
        mode, held = 0o040000, tree.id
    bomb = Commit()
    bomb.tree, bomb.parents, bomb.message = held, [shop.repo.head()], b"boom"
    bomb.author = bomb.committer = BEN
    bomb.author_time = bomb.commit_time = START + DAY
    bomb.author_timezone = bomb.commit_timezone = 0
    store.add_objects([(thing, None) for thing in (*made, bomb)])
    shop.repo.refs[MAIN] = bomb.id
    with pytest.raises(FeedError, match="more than 5000 files"):
        list(source_of(tmp_path, str(shop.root)).changes(None))


# names that files had


def test_renames_add_up_from_sync_to_sync(tmp_path: Path, shop: Workshop) -> None:
    source = source_of(tmp_path, str(shop.root))
    _, cursor = read(source)
    shop.commit({"lib/b.tcl": SCRIPT + b"# b\n"}, 1, gone=("lib/ramp.tcl",))
    changes, cursor = read(source, cursor)
    assert gone(changes) == {"ops-tools/lib/ramp.tcl"}
    shop.commit({"c.tcl": SCRIPT + b"# c\n"}, 2, gone=("lib/b.tcl",))
    shop.commit({"d.tcl": SCRIPT + b"# d\n"}, 3, gone=("c.tcl",))
    changes, cursor = read(source, cursor)
    found = records(changes)["ops-tools/d.tcl"]
    assert former(found) == ["ops-tools/c.tcl", "ops-tools/lib/b.tcl", "ops-tools/lib/ramp.tcl"]
    assert found.created_at == records(read(source)[0])["ops-tools/d.tcl"].created_at
    shop.commit({"d.tcl": b"quite = 'another text'\n"}, 4)
    assert former(records(read(source, cursor)[0])["ops-tools/d.tcl"]) == former(found)


def test_a_rename_in_two_commits_is_seen_between_two_heads(tmp_path: Path, shop: Workshop) -> None:
    source = source_of(tmp_path, str(shop.root))
    _, cursor = read(source)
    shop.commit({}, 1, gone=("lib/ramp.tcl",))
    shop.commit({"new.tcl": SCRIPT}, 2)
    changes, cursor = read(source, cursor)
    assert former(records(changes)["ops-tools/new.tcl"]) == ["ops-tools/lib/ramp.tcl"]
    assert former(records(read(source, source.again(cursor))[0])["ops-tools/new.tcl"]) == ["ops-tools/lib/ramp.tcl"]


def test_a_copy_is_no_rename(tmp_path: Path, shop: Workshop) -> None:
    source = source_of(tmp_path, str(shop.root))
    _, cursor = read(source)
    shop.commit({"copy.tcl": SCRIPT}, 1)
    assert former(records(read(source, cursor)[0])["ops-tools/copy.tcl"]) is None


def test_another_name_for_a_repository_keeps_the_old_keys(tmp_path: Path, shop: Workshop) -> None:
    _, cursor = read(source_of(tmp_path, str(shop.root)))
    changes, cursor = read(source_of(tmp_path, str(shop.root), options={"repository": "oag"}), cursor)
    assert former(records(changes)["oag/a.py"]) == ["ops-tools/a.py"]
    assert gone(changes) == {"ops-tools/a.py", "ops-tools/lib/ramp.tcl"}
    shop.commit({"b.py": b"a = 1\n"}, 1, gone=("a.py",))
    changes, _ = read(source_of(tmp_path, str(shop.root), options={"repository": "oag"}), cursor)
    assert former(records(changes)["oag/b.py"]) == ["oag/a.py", "ops-tools/b.py", "ops-tools/a.py"]


# branches and histories that change under us


def test_a_rewritten_history_leaves_nothing_behind(tmp_path: Path, shop: Workshop, server: FaultyServer) -> None:
    source = source_of(tmp_path, f"{server.url}/ops-tools.git")
    shop.commit({"secret.txt": b"hunter2 hunter2\n", "b.py": b"b = 1\n"}, 1)
    leaked = head_of(shop.repo).id
    _, cursor = read(source)
    shop.repo.refs[MAIN] = head_of(shop.repo).parents[0]
    shop.stage("secret.txt")
    shop.commit({"b.py": b"b = 1\n", "moved.tcl": SCRIPT}, 2, BEN, gone=("lib/ramp.tcl", "secret.txt"))
    changes, cursor = read(source, cursor)
    assert gone(changes) == {"ops-tools/secret.txt", "ops-tools/lib/ramp.tcl"}
    assert former(records(changes)["ops-tools/moved.tcl"]) == ["ops-tools/lib/ramp.tcl"]
    assert records(changes)["ops-tools/b.py"].author == "Ben Booster", "the same bytes, written by another"
    with contextlib.closing(Repo(str(clone_in(tmp_path)))) as clone:
        assert leaked not in clone.object_store
        assert head_of(shop.repo).id in clone.object_store
    assert read(source, cursor) == ([], cursor)


def test_a_deleted_branch_is_an_outage(tmp_path: Path, shop: Workshop) -> None:
    shop.repo.refs[Ref(b"refs/heads/fix")] = shop.repo.head()
    source = source_of(tmp_path, str(shop.root), options={"branch": "fix"})
    changes, cursor = read(source)
    assert records(changes)["ops-tools/a.py"].fields["branch"] == "fix"
    del shop.repo.refs[Ref(b"refs/heads/fix")]
    for look in (source.fingerprint, source.check, lambda: list(source.changes(cursor))):
        with pytest.raises(FeedError, match=r"no branch 'fix'; there are: main"):
            look()


def test_a_renamed_default_branch_is_followed(tmp_path: Path, shop: Workshop, server: FaultyServer) -> None:
    source = source_of(tmp_path, f"{server.url}/ops-tools.git")
    _, cursor = read(source)
    shop.repo.refs[Ref(b"refs/heads/trunk")] = shop.repo.head()
    shop.repo.refs.set_symbolic_ref(HEADREF, Ref(b"refs/heads/trunk"))
    del shop.repo.refs[MAIN]
    changes, cursor = read(source, cursor)
    assert {record.fields["branch"] for record in records(changes).values()} == {"trunk"}
    assert (len(records(changes)), gone(changes)) == (2, set())
    assert read(source, cursor)[0] == []


def test_an_emptied_repository_is_no_emptiness(tmp_path: Path, shop: Workshop) -> None:
    source = source_of(tmp_path, str(shop.root))
    _, cursor = read(source)
    shutil.rmtree(shop.root)
    Repo.init(str(shop.root), mkdir=True, default_branch=b"main").close()
    with pytest.raises(FeedError, match="is empty, but 2 files were read"):
        list(source.changes(cursor))
    with pytest.raises(FeedError, match="no commit yet"):
        source.check()
    changes, cursor = read(source)
    assert (changes, cursor["units"], cursor["notes"]) == ([], {}, {"repositories": {}})


# several repositories


@pytest.fixture
def pair(tmp_path: Path, shop: Workshop) -> Iterator[tuple[FaultyServer, GitClones]]:
    other = Workshop(tmp_path / "src" / "llrf")
    other.commit({"loop.py": b"gain = 1\n"}, 0, BEN)
    with serving(git_server({"ops-tools.git": shop.repo, "rf/llrf": other.repo})) as running:
        named = [{"url": "ops-tools.git"}, {"url": f"{running.url}/rf/llrf", "name": "low-level"}]
        yield running, source_of(tmp_path, running.url, options={"repositories": named})
    other.repo.close()


def test_one_unreachable_repository_keeps_its_files_and_delays_no_other(
    tmp_path: Path, shop: Workshop, pair: tuple[FaultyServer, GitClones]
) -> None:
    server, source = pair
    changes, cursor = read(source)
    assert set(records(changes)) == {"ops-tools/a.py", "ops-tools/lib/ramp.tcl", "low-level/loop.py"}
    assert source.check().detail.startswith("2 repositories answer: ops-tools (main at ")
    server.fail("status", times=-1, path="^/rf/", status=404)
    shop.commit({"a.py": b"a = 2\n"}, 1)
    assert source.fingerprint() is None
    changes, cursor = read(source, cursor)
    (failure,) = [change for change in changes if isinstance(change, Failure)]
    assert (failure.unit, failure.item, failure.permanent) == ("low-level", "low-level", False)
    assert "status 404" in failure.reason
    assert (set(records(changes)), gone(changes)) == ({"ops-tools/a.py"}, set())
    server.faults.clear()
    assert read(source, cursor) == ([], cursor)
    server.fail("status", times=-1, status=403)
    with pytest.raises(FeedError, match="status 403"):
        list(source.changes(cursor))


def test_a_repository_that_is_no_longer_named_goes_with_its_clone(
    tmp_path: Path, pair: tuple[FaultyServer, GitClones]
) -> None:
    server, source = pair
    _, cursor = read(source)
    assert len(list((tmp_path / "scratch").glob("*.git"))) == 2
    fewer = source_of(tmp_path, server.url, options={"repositories": [{"url": "ops-tools.git"}]})
    changes, cursor = read(fewer, cursor)
    assert changes == [Complete("low-level/loop.py")]
    assert clone_in(tmp_path).name.startswith("ops-tools-")


# servers that fail


@pytest.mark.parametrize("path", ["info/refs", "/git-upload-pack$"])
@pytest.mark.parametrize("kind", ["status", "hang", "reset", "cut"])
def test_one_fault_is_survived(tmp_path: Path, server: FaultyServer, kind: str, path: str) -> None:
    server.fail(kind, path=path)
    changes, _ = read(source_of(tmp_path, f"{server.url}/ops-tools.git"))
    assert len(records(changes)) == 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "status"}, "status 500"),
        ({"kind": "hang"}, "no answer within"),
        ({"kind": "cut"}, "the connection broke"),
        ({"kind": "torn"}, "cannot be read as git"),
        ({"kind": "html"}, "a web page came"),
        ({"kind": "empty"}, "no git server answers there"),
        ({"kind": "status", "status": 401}, "check the feed's `credentials`"),
    ],
)
def test_a_lasting_fault_is_an_outage_that_leaves_the_clone_as_it_was(
    tmp_path: Path, shop: Workshop, server: FaultyServer, fault: dict[str, Any], said: str
) -> None:
    network = QUICK.model_copy(update={"timeout_s": 0.2})
    source = source_of(tmp_path, f"{server.url}/ops-tools.git", network)
    _, cursor = read(source)
    shop.commit({"a.py": b"a = 2\n"}, 1)
    clone = clone_in(tmp_path)
    server.fail(times=-1, path="/git-upload-pack$", **fault)
    with pytest.raises(FeedError, match=r"127\.0\.0\.1.*ops-tools") as caught:
        list(source.changes(cursor))
    assert said in str(caught.value)
    assert clone_in(tmp_path) == clone
    server.faults.clear()
    assert set(records(read(source, cursor)[0])) == {"ops-tools/a.py"}


def test_a_first_clone_that_fails_leaves_none(tmp_path: Path, server: FaultyServer) -> None:
    source = source_of(tmp_path, f"{server.url}/ops-tools.git")
    server.fail("torn", times=-1, path="/git-upload-pack$")
    with pytest.raises(FeedError):
        list(source.changes(None))
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == [".lock"]


def test_an_answer_above_the_limit_says_so(tmp_path: Path, shop: Workshop, server: FaultyServer) -> None:
    import random

    shop.commit({"noise.bin": random.Random(1).randbytes(300_000)}, 1)
    small = QUICK.model_copy(update={"max_response_mb": 0.1})
    with pytest.raises(FeedError, match=r"above network\.max_response_mb"):
        list(source_of(tmp_path, f"{server.url}/ops-tools.git", small).changes(None))


def test_credentials_go_to_their_own_server_and_nowhere_else(
    tmp_path: Path, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(tmp_path, "http://127.0.0.1:9/r", credentials=Credentials(token=SecretPlace(env="GIT_SECRET")))
    with pytest.raises(FeedError, match=r"the environment variable GIT_SECRET is not set"):
        source.check()
    monkeypatch.setenv("GIT_SECRET", "glpat-123")
    secret = SecretPlace(env="GIT_SECRET")
    with serving(git_server({"r": shop.repo}, "git", "glpat-123")) as server:
        with pytest.raises(FeedError, match="status 401"):
            list(source_of(tmp_path, f"{server.url}/r").changes(None))
        for credentials in (Credentials(token=secret), Credentials(user="git", password=secret)):
            source = source_of(tmp_path, f"{server.url}/r", credentials=credentials)
            assert len(records(read(source)[0])) == 2
            assert "glpat" not in (clone_in(tmp_path) / "config").read_text()

        @Request.application
        def elsewhere(request: Request) -> Response:
            return Response("", 301, headers={"Location": f"{server.url}{request.full_path}"})

        with serving(elsewhere) as moved:
            source = source_of(tmp_path, f"{moved.url}/r", credentials=Credentials(token=secret))
            with pytest.raises(FeedError, match="status 401") as caught:
                source.check()
            assert "glpat" not in str(caught.value)
        assert "AUTHORIZATION" not in server.headers[-1]


def test_a_redirect_is_followed(tmp_path: Path, server: FaultyServer) -> None:
    @Request.application
    def elsewhere(request: Request) -> Response:
        return Response(
            "", 301, headers={"Location": f"{server.url}/ops-tools.git/info/refs?{request.query_string.decode()}"}
        )

    with serving(elsewhere) as moved:
        changes, _ = read(source_of(tmp_path, f"{moved.url}/old/place"))
    assert set(records(changes)) == {"place/a.py", "place/lib/ramp.tcl"}


# ssh and paths

SSH = """
import sys
from dulwich.server import FileSystemBackend, UploadPackHandler, serve_command
*options, host, command = sys.argv[1:]
assert host == "ada@git.example" and "BatchMode=yes" in options, sys.argv
if command.startswith("git-upload-pack '/hang"):
    sys.stdin.read()
path = command.split("'")[1]
serve_command(UploadPackHandler, ["upload-pack", path], backend=FileSystemBackend("/"))
"""


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    (tmp_path / "ssh.py").write_text(SSH)
    return f"{sys.executable} {tmp_path / 'ssh.py'}"


def test_a_repository_over_ssh(tmp_path: Path, shop: Workshop, ssh: str) -> None:
    patient = QUICK.model_copy(update={"deadline_s": 30})
    for url in (f"ssh://ada@git.example{shop.root}", f"ada@git.example:{shop.root}"):
        source = source_of(tmp_path, url, patient, options={"ssh_command": ssh})
        changes, _ = read(source)
        assert set(records(changes)) == {"ops-tools/a.py", "ops-tools/lib/ramp.tcl"}


def test_ssh_that_hangs_or_fails_ends(tmp_path: Path, ssh: str) -> None:
    short = QUICK.model_copy(update={"deadline_s": 0.5})
    with pytest.raises(FeedError, match=r"hang/x: not done within network\.deadline_s"):
        source_of(tmp_path, "ssh://ada@git.example/hang/x", short, options={"ssh_command": ssh}).check()
    with pytest.raises(FeedError, match=r"git\.example/nothing.*cannot be read as git"):
        source_of(tmp_path, "ssh://ada@git.example/nothing", QUICK, options={"ssh_command": "false"}).check()


def test_a_path_that_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match=r"no git repository is there; mend `url`"):
        source_of(tmp_path, f"file://{tmp_path}").check()


# clones that are damaged


def test_a_damaged_clone_is_made_anew(tmp_path: Path, shop: Workshop) -> None:
    source = source_of(tmp_path, str(shop.root))
    _, cursor = read(source)
    clone = clone_in(tmp_path)
    for damage in (
        lambda: shutil.rmtree(clone / "objects"),
        lambda: [path.write_bytes(b"PACK") for path in clone.glob("objects/pack/*.pack")],
        lambda: [path.write_bytes(b"") for path in clone.glob("objects/pack/*.idx")],
        lambda: (clone / "refs/heads/read").write_text("0" * 40 + "\n"),
        lambda: (clone / "HEAD").unlink(),
    ):
        for path in clone.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        damage()
        assert read(source, cursor) == ([], cursor)
        assert len(records(read(source)[0])) == 2


def test_a_half_written_clone_is_swept_away(tmp_path: Path, shop: Workshop) -> None:
    source = source_of(tmp_path, str(shop.root))
    read(source)
    left = tmp_path / "scratch" / f".new-{clone_in(tmp_path).name}"
    shutil.copytree(clone_in(tmp_path), left)
    assert len(records(read(source)[0])) == 2
    assert not left.exists()


def test_a_damaged_file_in_the_clone_costs_one_sync(tmp_path: Path, shop: Workshop) -> None:
    source = source_of(tmp_path, str(shop.root))
    _, cursor = read(source)
    shop.commit({"a.py": b"a = 2\n", "b.py": b"b = 2\n"}, 1)
    read(source)
    with contextlib.closing(Repo(str(clone_in(tmp_path)))) as clone:
        store = clone.object_store
        for sha in list(store):
            store.add_object(store[sha])  # as single files, to damage one
        shutil.rmtree(clone_in(tmp_path) / "objects" / "pack")
        (clone_in(tmp_path) / "objects" / "pack").mkdir()
    blob = next(shop.repo.open_index()[b"a.py"].sha.decode() for _ in "x")
    place = clone_in(tmp_path) / "objects" / blob[:2] / blob[2:]
    place.chmod(0o644)
    place.write_bytes(b"not zlib")
    changes, after = read(source, cursor)
    (failure,) = [change for change in changes if isinstance(change, Failure)]
    assert (failure.unit, failure.permanent) == ("ops-tools/a.py", False)
    assert "damaged" in failure.reason
    assert set(records(changes)) == {"ops-tools/b.py"}
    mended, _ = read(source, after)
    assert records(mended)["ops-tools/a.py"].parts[0].text == "a = 2"


def test_many_packs_become_one(tmp_path: Path, shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    from aps_rag_pipeline.sources.repositories import clones

    monkeypatch.setattr(clones, "_MOST_PACKS", 3)
    source = source_of(tmp_path, str(shop.root))
    cursor = None
    for number in range(6):
        shop.commit({"a.py": b"a = %d\n" % number}, number + 1)
        changes, cursor = read(source, cursor)
        assert records(changes)["ops-tools/a.py"].parts[0].text == f"a = {number}"
    assert len(list(clone_in(tmp_path).glob("objects/pack/*.pack"))) <= 3


def test_two_syncs_of_one_feed_do_not_write_one_clone(tmp_path: Path, shop: Workshop) -> None:
    source = source_of(tmp_path, str(shop.root))
    read(source)
    with (tmp_path / "scratch" / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(FeedError, match="another sync of this feed"):
            list(source.changes(None))
    assert len(records(read(source)[0])) == 2


# configuration


@pytest.mark.parametrize(
    ("url", "more", "said"),
    [
        ("", {}, "name a repository by `url`"),
        ("git://x/y", {}, "no address of a git repository"),
        ("relative/path", {}, "no address of a git repository"),
        ("/x", {"options": {"branches": "main"}}, "branches"),
        ("/x", {"options": {"repositories": [{"name": "a"}]}}, "url"),
        ("/x", {"options": {"repositories": [{"url": "a"}, {"url": "b/a.git"}]}}, "'a' is taken"),
        ("/x", {"options": {"repositories": [{"url": "a"}], "branch": "main"}}, "each has its own"),
        ("/x", {"options": {"repositories": [{"url": "https://u:p@x/a"}]}}, "has a password in it"),
        ("/x", {"options": {"max_text_kb": "many"}}, "max_text_kb must be a whole number"),
        ("/x", {"credentials": Credentials(token=SecretPlace(env="T"))}, "ssh signs in by key"),
        (
            "",
            {
                "options": {"repositories": [{"url": "https://a/x"}, {"url": "https://b/y"}]},
                "credentials": Credentials(token=SecretPlace(env="T")),
            },
            "would go to several servers",
        ),
    ],
)
def test_what_cannot_be_meant_is_told_at_once(tmp_path: Path, url: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        source_of(tmp_path, url, **more)
