"""What a feed holds that is no record by design: counted with the reason, forgotten when its unit is read again."""

from __future__ import annotations

from collections.abc import Iterator

from aps_rag_pipeline.sources.base import Ignored
from aps_rag_pipeline.stores.catalog import Catalog


def note_ignored(catalog: Catalog, feed: str, ignored: list[Ignored], complete: set[str]) -> None:
    """Put what a stream ignored in the place of what was known of the units it read whole."""
    known = [row["place"] for row in catalog.rows("select place from ignored where feed = ?", (feed,))]
    read_again = [place for place in known if any(unit in complete for unit in units_above(place))]
    catalog.connection.executemany("delete from ignored where feed = ? and place = ?", ((feed, p) for p in read_again))
    catalog.connection.executemany(
        "insert or replace into ignored values (?, ?, ?)", ((feed, each.place, each.reason) for each in ignored)
    )


def units_above(place: str) -> Iterator[str]:
    """The units that a place may lie in: itself, its file, and the folders above."""
    yield place
    for at, sign in enumerate(place):
        if sign in ":/":
            yield place[:at]
