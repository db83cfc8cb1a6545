"""A record that was renamed: its old key finds it, as far as the reader may see it, and a purge by either key holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aps_rag_pipeline.records import FORMER_IDS
from aps_rag_pipeline.sync import purge as purging
from query import Corpus
from query.lookup import AmbiguousKeyError, RecordNotFoundError
from tests.small_facility import Facility
from tests.workshop import Workshop

ORBIT = b"# Corrects the orbit with the fast feedback.\nproc correctOrbit {args} {\n  puts corrected\n}\n" * 3


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    made = Workshop(tmp_path / "ops-tools")
    made.commit({"tcl/orbit.tcl": ORBIT, "other.py": b"x = 1\n"}, 0)
    yield made
    made.repo.close()


def facility_of(tmp_path: Path, form: str = "git", **feed: Any) -> Facility:
    place = {"location": "ops-tools"} if form == "files" else {"url": str(tmp_path / "ops-tools")}
    feeds = [{"name": "code", "source": "code", "form": form, **place, **feed}]
    return Facility(tmp_path, extra={"feeds": feeds})


def rename(shop: Workshop, old: str, new: str, day: int) -> None:
    shop.commit({new: (shop.root / old).read_bytes()}, day, gone=(old,))


def key_of(corpus: Corpus, asked: str) -> str:
    return corpus.record(asked).key


@pytest.mark.parametrize("form", ["git", "files"])
def test_an_old_key_finds_the_renamed_file(tmp_path: Path, shop: Workshop, form: str) -> None:
    facility = facility_of(tmp_path, form)
    facility.sync()
    rename(shop, "tcl/orbit.tcl", "lib/orbit.tcl", 1)
    facility.sync()
    rename(shop, "lib/orbit.tcl", "src/correctOrbit.tcl", 2)
    facility.sync()
    new = "CODE:ops-tools/src/correctOrbit.tcl"
    with Corpus.open(facility.home, None) as corpus:
        for old in ("CODE:ops-tools/tcl/orbit.tcl", "code:OPS-TOOLS/lib/Orbit.tcl", "ops-tools/tcl/orbit.tcl"):
            assert key_of(corpus, old) == new
        assert corpus.record(new).fields[FORMER_IDS] == ["ops-tools/lib/orbit.tcl", "ops-tools/tcl/orbit.tcl"]
        assert corpus.search("ops-tools/tcl/orbit.tcl").hits[0].key == new
        assert corpus.search("CODE:ops-tools/lib/orbit.tcl").hits[0].key == new
        with pytest.raises(RecordNotFoundError):
            corpus.record("CODE:ops-tools/tcl/never.tcl")
        assert corpus.status().records == 2


def test_a_live_record_goes_before_one_that_was_called_so(tmp_path: Path, shop: Workshop) -> None:
    facility = facility_of(tmp_path)
    facility.sync()
    rename(shop, "tcl/orbit.tcl", "lib/orbit.tcl", 1)
    shop.commit({"tcl/orbit.tcl": b"another = 1\n"}, 2)
    facility.sync()
    with Corpus.open(facility.home, None) as corpus:
        assert key_of(corpus, "CODE:ops-tools/tcl/orbit.tcl") == "CODE:ops-tools/tcl/orbit.tcl"
    rename(shop, "tcl/orbit.tcl", "bin/orbit", 3)
    facility.sync()
    with Corpus.open(facility.home, None) as corpus, pytest.raises(AmbiguousKeyError, match=r"bin/orbit.*lib/orbit"):
        corpus.record("CODE:ops-tools/tcl/orbit.tcl")


def test_labels_hold_for_old_keys(tmp_path: Path, shop: Workshop) -> None:
    facility = facility_of(tmp_path, access=["ops"])
    facility.sync()
    rename(shop, "tcl/orbit.tcl", "lib/orbit.tcl", 1)
    facility.sync()
    with Corpus.open(facility.home, set()) as outsider:
        with pytest.raises(RecordNotFoundError):
            outsider.record("CODE:ops-tools/tcl/orbit.tcl")
        assert outsider.search("ops-tools/tcl/orbit.tcl").hits == []
    with Corpus.open(facility.home, {"ops"}) as insider:
        assert key_of(insider, "CODE:ops-tools/tcl/orbit.tcl") == "CODE:ops-tools/lib/orbit.tcl"


def test_old_keys_where_the_source_has_several_feeds(tmp_path: Path, shop: Workshop) -> None:
    facility = facility_of(tmp_path)
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "a.py").write_text("x = 1\n")
    facility.extra["feeds"].append({"name": "scripts", "source": "code", "location": "loose"})
    facility.sync()
    rename(shop, "tcl/orbit.tcl", "lib/orbit.tcl", 1)
    facility.sync()
    with Corpus.open(facility.home, None) as corpus:
        for old in ("CODE:code/ops-tools/tcl/orbit.tcl", "CODE:ops-tools/tcl/orbit.tcl"):
            assert key_of(corpus, old) == "CODE:code/ops-tools/lib/orbit.tcl"


def test_a_folder_that_was_renamed_is_no_large_removal(tmp_path: Path, shop: Workshop) -> None:
    facility = facility_of(tmp_path)
    names = [f"old/s{number}.tcl" for number in range(30)]
    shop.commit({name: ORBIT + name.encode() for name in names}, 1)
    facility.sync()
    shop.commit({name.replace("old/", "new/"): ORBIT + name.encode() for name in names}, 2, gone=(*names, "other.py"))
    facility.sync()
    with Corpus.open(facility.home, None) as corpus:
        assert corpus.status().records == 31
        assert key_of(corpus, "CODE:ops-tools/old/s7.tcl") == "CODE:ops-tools/new/s7.tcl"


@pytest.mark.parametrize("key", ["CODE:ops-tools/lib/orbit.tcl", "CODE:ops-tools/tcl/orbit.tcl"])
def test_a_purge_by_either_key_holds_through_further_renames(tmp_path: Path, shop: Workshop, key: str) -> None:
    facility = facility_of(tmp_path)
    facility.sync()
    rename(shop, "tcl/orbit.tcl", "lib/orbit.tcl", 1)
    facility.sync()
    with facility.workspace() as workspace:
        assert purging.purge(workspace, key) >= 1
    rename(shop, "lib/orbit.tcl", "more/orbit.tcl", 2)
    facility.sync()
    shop.commit({"tcl/orbit.tcl": (shop.root / "more/orbit.tcl").read_bytes()}, 3, gone=("more/orbit.tcl",))
    facility.sync()
    with Corpus.open(facility.home, None) as corpus:
        assert corpus.status().records == 1
        for name in ("tcl", "lib", "more"):
            with pytest.raises(RecordNotFoundError):
                corpus.record(f"CODE:ops-tools/{name}/orbit.tcl")
        assert corpus.search("fast feedback orbit").hits[0].key == "CODE:ops-tools/other.py"


def test_a_feed_that_is_taken_out_leaves_no_clone(tmp_path: Path, shop: Workshop) -> None:
    facility = facility_of(tmp_path)
    facility.write()
    facility.sync()
    clones = facility.home.checkouts / "code"
    assert list(clones.glob("ops-tools-*.git"))
    facility.extra["feeds"] = [{"name": "logbook", "source": "bely", "location": "log"}]
    (tmp_path / "log" / "a.json").write_text("[]")
    facility.sync()
    assert facility.live() == {}
    assert not clones.exists()
