"""Records by their citation keys, and what there is for a reader to see."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from aps_rag_pipeline.knowledge import identifiers
from aps_rag_pipeline.records import KEY_PREFIX
from aps_rag_pipeline.stores.releases import Release
from aps_rag_pipeline.stores.tables import EDGES, NODES, PASSAGES, RECORDS, sql_list
from query import places
from query.filters import Filters
from query.places import Place
from query.results import CorpusStatus, FeedStatus, Freshness, LinkView, PassageView, RecordView, Searched

if TYPE_CHECKING:
    from lancedb.table import Table

_SOURCE_OF = {prefix: source for source, prefix in KEY_PREFIX.items()}
_KEY = re.compile(rf"^\s*({'|'.join(_SOURCE_OF)})\s*:\s*(\S.*?)\s*$", re.IGNORECASE)
#: More records of one name than this are not listed.
_MOST_NAMED = 8
_PLACE = "Location:"
_THINGS = ("Component:", "ProcessVariable:")
#: How many things located in places of a kind are looked at to learn how they are named.
_MOST_LOCATED = 5_000


class RecordNotFoundError(KeyError):
    """No record that the reader may see is called so. A hidden record and one that never was look the same."""

    def __str__(self) -> str:
        return str(self.args[0])


class AmbiguousKeyError(RecordNotFoundError):
    """Several records are called so; `keys` are theirs."""

    def __init__(self, asked: str, keys: list[str]) -> None:
        self.keys = keys
        shown = ", ".join(keys[:_MOST_NAMED]) + (" ..." if len(keys) > _MOST_NAMED else "")
        super().__init__(f"{asked!r} is the name of several records: {shown}")


def find_record(release: Release, filters: Filters, asked: str, named: Callable[[str], list[str]]) -> RecordView:
    """The record that a key, a key without its feed, or an id names; letter case does not matter.

    Args:
        named: keys of the reader's records that the BM25 index knows under a normal form, old keys too.

    Raises:
        RecordNotFoundError: there is none that the reader may see.
        AmbiguousKeyError: there are several.
    """
    records = release.table(RECORDS)
    rows: list[dict[str, Any]] = []
    for condition in _conditions(asked):
        rows = _rows(records, f"({condition}) and {filters.sql()}")
        if rows:
            break
    if not rows and (keys := named(identifiers.normal(asked))):
        rows = _rows(records, f"key in ({sql_list(keys)}) and {filters.sql()}")
    if not rows:
        raise RecordNotFoundError(f"no record {asked!r}")
    if len(rows) > 1:
        raise AmbiguousKeyError(asked, sorted(row["key"] for row in rows))
    return _view(rows[0], release.table(PASSAGES), filters)


def status_of(release: Release, filters: Filters) -> CorpusStatus:
    """Counts of what the reader may see."""
    rows = (
        release.table(RECORDS)
        .search()
        .where(filters.sql())
        .select(["source", "feed", "created_at", "modified_at"])
        .limit(release.table(RECORDS).count_rows() + 1)
        .to_arrow()
        .to_pylist()
    )
    feeds: dict[tuple[str, str], FeedStatus] = {}
    for row in rows:
        place = (row["source"], row["feed"])
        known = feeds.get(place, FeedStatus(*place, records=0))
        times = [time for time in (known.newest_at, row["created_at"], row["modified_at"]) if time is not None]
        feeds[place] = FeedStatus(*place, records=known.records + 1, newest_at=max(times, default=None))
    manifest = release.manifest
    for found in manifest.feeds:
        seen = feeds.get((found.source, found.feed))
        if seen is not None and seen.records == found.records and found.lag is not None:
            lag = found.lag
            fresh = Freshness(lag.at, lag.changed, lag.first_sight, lag.median_s, lag.p95_s, lag.worst_s)
            feeds[found.source, found.feed] = replace(seen, freshness=fresh)
    order = {source: place for place, source in enumerate(KEY_PREFIX)}
    return CorpusStatus(
        facility=manifest.facility,
        release=manifest.number,
        changeset=manifest.changeset,
        published_at=manifest.published_at,
        model=manifest.model.name,
        records=len(rows),
        passages=release.table(PASSAGES).count_rows(filters.sql()),
        chunks=release.chunks().count_rows(filters.sql()),
        feeds=sorted(feeds.values(), key=lambda feed: (order.get(feed.source, len(order)), feed.feed)),
    )


def searched(release: Release, filters: Filters) -> Searched:
    """How much a search with these filters looks through, in which kinds of source."""
    records = release.table(RECORDS)
    query = records.search().select(["source"]).limit(records.count_rows() + 1)
    condition = filters.narrowing()
    found = (query if condition is None else query.where(condition)).to_arrow()
    there = set(found["source"].unique().to_pylist())
    return Searched(
        records=found.num_rows,
        sources=tuple(source for source in KEY_PREFIX if source in there),
        since=filters.since,
        until=filters.until,
    )


def find_place(
    visible: Filters,
    text: str,
    known: Callable[[Filters], frozenset[str]],
    beginnings: Callable[[Filters, str], tuple[str, ...]],
) -> Place | None:
    """The place that a question names, if a source that the reader may see locates anything there.

    Args:
        known: the places that there are, see :func:`places_in`.
        beginnings: how the names of things begin that stand in places of a kind, see :func:`beginnings_in`.
    """
    for kind, number in places.numbered(text):
        if f"{kind} {number}" in known(visible):
            return Place(kind, number, beginnings(visible, kind))
    return None


def places_in(release: Release, visible: Filters) -> frozenset[str]:
    """Names of the numbered places, as far as the reader may see that they are there."""
    nodes = release.table(NODES)
    condition = f"starts_with(node_id, {_text(_PLACE)}) and {visible.sql(timed=False)}"
    found = nodes.search().where(condition).select(["node_id"]).limit(max(nodes.count_rows(), 1)).to_arrow()
    names = (node.removeprefix(_PLACE) for node in found["node_id"].to_pylist())
    return frozenset(name for name in names if name[-1:].isdigit())


def beginnings_in(release: Release, visible: Filters, kind: str) -> tuple[str, ...]:
    """Beginnings of the names of things in places of a kind, as far as the reader may see where they stand."""
    condition = f"relation = 'LOCATED_IN' and starts_with(dst, {_text(f'{_PLACE}{kind} ')})"
    rows = (
        release.table(EDGES)
        .search()
        .where(f"{condition} and {visible.sql(timed=False)}")
        .select(["src", "dst"])
        .limit(_MOST_LOCATED)
        .to_arrow()
    )
    pairs = zip(rows["src"].to_pylist(), rows["dst"].to_pylist(), strict=True)
    return places.beginnings((src.partition(":")[2], dst) for src, dst in pairs if src.startswith(_THINGS))


def _conditions(asked: str) -> list[str]:
    """Conditions over the records table, the strictest first; the first that holds anywhere decides."""
    asked = asked.strip()
    found = [f"key = {_text(asked)}", f"lower(key) = {_text(asked.lower())}"]
    match = _KEY.match(asked)
    if match is None:
        return [*found, f"id = {_text(asked)}", f"lower(id) = {_text(asked.lower())}"]
    source, name = _SOURCE_OF[match[1].upper()], match[2].lower()
    own = f"source = {_text(source)}"
    found.append(f"{own} and lower(id) = {_text(name)}")
    feed, slash, identity = name.partition("/")
    if slash:
        found.append(f"{own} and feed = {_text(feed)} and lower(id) = {_text(identity)}")
    return found


def _text(value: str) -> str:
    return sql_list([value])


def _rows(table: Table, condition: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.search().where(condition).limit(4 * _MOST_NAMED).to_arrow().to_pylist()
    return rows


def _view(row: dict[str, Any], passages: Table, filters: Filters) -> RecordView:
    own = f"key = {_text(row['key'])} and {filters.sql(timed=False)}"
    count = passages.count_rows(own)
    found = passages.search().where(own).limit(max(count, 1)).to_arrow().to_pylist() if count else []
    return RecordView(
        key=row["key"],
        source=row["source"],
        feed=row["feed"],
        id=row["id"],
        title=row["title"] or "",
        created_at=row["created_at"],
        modified_at=row["modified_at"],
        author=row["author"] or "",
        url=row["url"] or "",
        access=list(row["access"]),
        fields=json.loads(row["fields"] or "{}"),
        links=[
            LinkView(link["kind"], link["target"], link.get("text", "")) for link in json.loads(row["links"] or "[]")
        ],
        passages=[
            PassageView(*(item[name] or "" for name in ("passage_id", "kind", "title", "locator", "text")))
            for item in sorted(found, key=lambda item: item["ordinal"])
        ],
    )
