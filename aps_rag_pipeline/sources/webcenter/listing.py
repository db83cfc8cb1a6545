"""The whole of a search, page by page, although the server goes on changing it.

Rows are sorted by their in-date, oldest first, so that what is checked in meanwhile comes last. A page begins with the
last row of the one before: where it begins with another one, rows have moved (something was deleted, or checked in
anew), and the listing is done again. A server that caps its pages is followed by what it gave, not by what was asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from aps_rag_pipeline.sources.net.errors import OutageError
from aps_rag_pipeline.sources.webcenter.binder import Binder, Row
from aps_rag_pipeline.sources.webcenter.service import Page

_PASSES = 3


@dataclass
class Listing:
    """Rows by revision; `binder` is the reply that says how their times are written."""

    binder: Binder = field(default_factory=lambda: Binder({}))
    rows: dict[str, Row] = field(default_factory=dict)
    total: int = 0
    whole: bool = True


def list_all(search: Callable[[int], Page], place: str) -> Listing:
    """Every row of a search; `search` gives the page that begins with a row (1-based).

    Raises:
        OutageError: the server counts more rows than it gives, or a page cannot be had.
    """
    listings: list[Listing] = []
    for _ in range(_PASSES):
        listing = _pass(search)
        if listing.whole:
            return listing
        listings.append(listing)
    # Pages that never fit (rows of one minute in no fixed order) are made up for by one another, if they are enough.
    last = listings[-1]
    for listing in listings[-2::-1]:
        last.rows = {**listing.rows, **last.rows}
    if len(last.rows) < last.total:
        raise OutageError(
            f"{place}: the search counts {last.total} documents but lists {len(last.rows)}, {_PASSES} times; nothing "
            "is taken from it. If it stays so, set options.sort to a field that differs in each document"
        )
    return last


def _pass(search: Callable[[int], Page]) -> Listing:
    listing = Listing()
    first, before = 1, ""
    while True:
        page = search(first)
        listing.binder, listing.total = page.binder, page.total
        names = [_name(row, first + index) for index, row in enumerate(page.rows)]
        if before and names[:1] != [before]:
            listing.whole = False
        listing.rows.update(zip(names, page.rows, strict=True))
        behind = first + len(names)
        if behind > page.total or behind - 1 <= first:
            break
        first, before = behind - 1, names[-1]
    listing.whole = listing.whole and len(listing.rows) >= listing.total
    return listing


def _name(row: Row, position: int) -> str:
    return row.get("dID", "").strip() or f"{row.get('dDocName', '')} in row {position}"
