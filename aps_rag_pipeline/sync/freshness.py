"""How long a change of a source takes to the release that serves it, by feed.

Dense, sparse and graph channel see a change with its release, all at once; the projection on a Bolt server follows at a
time of its own. A change counts from its modified time in the source, or from first sight where the source tells none,
tells one that is yet to come, or is loaded for the first time, when its records are as old as they are.
"""

from __future__ import annotations

import math
from collections.abc import Container
from datetime import datetime

import msgspec

from aps_rag_pipeline import clock
from aps_rag_pipeline.stores.catalog import Catalog, from_iso
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.releases import FeedFreshness, Lag, Manifest
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.workspace import Workspace

_PROJECTION = "projection.json"


class Projected(msgspec.Struct, frozen=True):
    """The changeset that the projection shows, and since when."""

    changeset: int
    at: datetime


def of_feeds(workspace: Workspace, before: Manifest | None, published_at: datetime) -> list[FeedFreshness]:
    """Figures of each feed with live records for the release that is published now.

    Args:
        before: the release until now. What it served is no news; a feed without news keeps its figures and their time.
    """
    catalog, home = workspace.catalog, workspace.home
    known = {feed.feed: feed for feed in before.feeds} if before else {}
    lags = _lags(catalog, before.changeset if before else 0, known.keys(), published_at)
    feeds = []
    for row in catalog.rows(
        "select source, feed, count(*) as records, max(coalesce(modified_at, seen_at)) as newest "
        "from records where removed = 0 group by source, feed"
    ):
        found, old = state.read_feed(home, row["source"], row["feed"]), known.get(row["feed"])
        feeds.append(
            FeedFreshness(
                source=row["source"],
                feed=row["feed"],
                records=row["records"],
                newest_at=from_iso(row["newest"]),
                lag=_lag(lags[row["feed"]], published_at) if row["feed"] in lags else old.lag if old else None,
                read_at=found.succeeded_at,
                unserved_since=unserved_since(catalog, found),
            )
        )
    return feeds


def unserved_since(catalog: Catalog, feed: state.FeedState) -> datetime | None:
    """Since when changes of a feed may wait: it has failed since then, or one of its items that is tried again has."""
    item = from_iso(
        catalog.value("select min(first_at) from dead_letters where feed = ? and retry_at is not null", (feed.feed,))
    )
    return min((time for time in (feed.failed_since, item) if time is not None), default=None)


def stale_s(feed: state.FeedState) -> float | None:
    """Seconds since a feed was last read successfully; None when it never was."""
    return None if feed.succeeded_at is None else max((clock.now() - feed.succeeded_at).total_seconds(), 0.0)


def read_projected(home: Home) -> Projected | None:
    """What the projection showed when it was last brought up to date; None when it never was."""
    return state.read(home.state / _PROJECTION, Projected)


def note_projected(home: Home, changeset: int) -> None:
    """The projection shows a changeset from now on; when it did before, the time stays."""
    known = read_projected(home)
    if known is None or known.changeset != changeset:
        state.write(home.state / _PROJECTION, Projected(changeset, clock.now()))


def _lags(
    catalog: Catalog, after: int, known: Container[str], published_at: datetime
) -> dict[str, list[tuple[float, bool]]]:
    """By feed, of each served version that came after a changeset: its seconds, and whether from first sight."""
    found: dict[str, list[tuple[float, bool]]] = {}
    for feed, modified, seen in catalog.connection.execute(
        # No version is newer than the last move of its record: so only what moved is read, by its index.
        "select r.feed, r.modified_at, r.seen_at from records r where r.changeset > ? and r.removed = 0 "
        "and r.access <> '[]' and exists "
        "(select 1 from versions v where v.rid = r.rid and v.changeset > ? and v.content_hash = r.content_hash)",
        (after, after),
    ):
        sighted = datetime.fromisoformat(seen)
        told = from_iso(modified) if feed in known else None
        began = told if told is not None and told <= sighted else sighted
        seconds = max((published_at - began).total_seconds(), 0.0)
        found.setdefault(feed, []).append((seconds, began is sighted))
    return found


def _lag(measured: list[tuple[float, bool]], at: datetime) -> Lag:
    seconds = sorted(each for each, _ in measured)

    def at_rank(share: float) -> float:
        return round(seconds[math.ceil(share * len(seconds)) - 1], 3)

    return Lag(
        at=at,
        changed=len(seconds),
        first_sight=sum(sighted for _, sighted in measured),
        median_s=at_rank(0.5),
        p95_s=at_rank(0.95),
        worst_s=at_rank(1),
    )
