"""A reader that polls the release the whole time and objects to whatever is not one of the known states."""

from __future__ import annotations

import json
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.home import Home
from tests.torture.ring import State, documents, state, version_in

#: Highest number of a state that a test comes to.
STATES = 12


def poll_until_stopped(home: Home, folder: Path, *, holds: bool) -> None:
    """Poll until `folder/stop` is there, then leave what was seen in `folder/seen.json`. With `holds` every third
    release is kept open and read for the first time after the next two."""
    seen: dict[str, Any] = {"polls": 0, "states": [], "problems": []}
    held: list[releases.Release] = []
    while True:
        stopping = (folder / "stop").exists()
        try:
            _poll(home, seen, held, holds)
            if stopping and held:
                _read_late(held)
        except releases.NoReleaseError:
            if seen["states"]:
                seen["problems"].append("there was a release, and now there is none")
        except Exception:
            seen["problems"].append(traceback.format_exc())
        if stopping:
            break
        time.sleep(0.05)
    draft = folder / ".seen"
    draft.write_text(json.dumps(seen))
    draft.rename(folder / "seen.json")


def _poll(home: Home, seen: dict[str, Any], held: list[releases.Release], holds: bool) -> None:
    with releases.open_release(home) as release:
        number = state_of(release)
        if seen["states"] and number < seen["states"][-1]:
            raise AssertionError(f"state {number} after {seen['states'][-1]}")
        if number not in seen["states"]:
            seen["states"].append(number)
    if holds and seen["polls"] % 3 == 0:
        held.append(releases.open_release(home))
    if len(held) > 1 or (held and seen["polls"] % 3 == 2):
        _read_late(held)
    seen["polls"] += 1


def _read_late(held: list[releases.Release]) -> None:
    with held.pop(0) as release:
        state_of(release)


def state_of(release: releases.Release) -> int:
    """The state that a release serves, in all of its parts alike."""
    tables = {name.partition("_")[0]: release.table(name).to_arrow().to_pylist() for name in release.manifest.tables}
    counts = {name: len(rows) for name, rows in tables.items()}
    assert counts == {name.partition("_")[0]: count for name, count in release.manifest.counts.items()}, counts
    records = {row["key"]: tuple(sorted(row["access"])) for row in tables["records"]}
    passages = {row["passage_id"]: row for row in tables["passages"]}
    versions: dict[str, set[int]] = defaultdict(set)
    for row in tables["passages"]:
        versions[row["key"]].add(version_in(row["text"]))
    served: State = {key: (_only(versions[key]), labels) for key, labels in records.items()}
    assert versions.keys() == records.keys()
    for chunk in tables["chunks"]:
        passage = passages[chunk["passage_id"]]
        assert version_in(chunk["text"]) == version_in(passage["text"]), chunk["chunk_id"]
        assert chunk["key"] == passage["key"]
        assert tuple(sorted(chunk["access"])) == records[chunk["key"]]
    assert {chunk["passage_id"] for chunk in tables["chunks"]} == passages.keys()
    assert sorted(documents(release.tantivy)) == sorted(c["chunk_id"] for c in tables["chunks"])
    _check_graph(tables, records)
    _check_marts(release, records)
    matches = [number for number in range(STATES + 1) if state(number) == served]
    assert len(matches) == 1, {key: value for key, value in served.items()}
    return matches[0]


def _check_graph(tables: dict[str, list[dict[str, Any]]], records: dict[str, tuple[str, ...]]) -> None:
    nodes = {row["node_id"] for row in tables["nodes"]}
    for edge in tables["edges"]:
        assert edge["key"] in records, edge
        assert {edge["src"], edge["dst"]} <= nodes, edge


def _check_marts(release: releases.Release, records: dict[str, tuple[str, ...]]) -> None:
    import duckdb

    with duckdb.connect() as connection:
        path = release.marts / "source_freshness.parquet"
        found = connection.execute(f"select sum(records) from '{path}'").fetchone()
    assert found == (len(records),), found


def _only(versions: set[int]) -> int:
    (found,) = versions
    return found
