"""What a reader may see and wants to see, as a condition that each channel applies inside its own search."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from aps_rag_pipeline.records import PUBLIC, SOURCES
from aps_rag_pipeline.stores.tables import sql_list

if TYPE_CHECKING:
    import tantivy

_LABELLED = "array_length(access) > 0"


@dataclass(frozen=True)
class Filters:
    """Labels, kinds of source, feeds and time of creation. `groups` None: the owner, who sees all that is labelled."""

    groups: frozenset[str] | None = None
    sources: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    without: tuple[str, ...] = ()  # kinds of source left out
    since: datetime | None = None
    until: datetime | None = None  # the first moment that is too late

    def admits(self, labels: Iterable[str]) -> bool:
        """Whether the reader may see what carries these labels; what carries none is for nobody."""
        carried = set(labels)
        return bool(carried) if self.groups is None else not carried.isdisjoint(self.groups)

    def sql(self, timed: bool = True) -> str:
        """The condition over a released table. `timed` False: the table has no time of creation."""
        parts = [_LABELLED]
        if self.groups is not None:
            parts = [f"array_has_any(access, [{sql_list(sorted(self.groups))}])"]
        if self.sources:
            parts.append(f"source in ({sql_list(self.sources)})")
        if self.without:
            parts.append(f"source not in ({sql_list(self.without)})")
        if self.feeds:
            parts.append(f"feed in ({sql_list(self.feeds)})")
        if timed and self.since is not None:
            parts.append(f"created_at >= timestamp '{self.since.isoformat()}'")
        if timed and self.until is not None:
            parts.append(f"created_at < timestamp '{self.until.isoformat()}'")
        return " and ".join(parts)

    def narrowing(self) -> str | None:
        """The condition for a search whose hits are looked up under :meth:`admits` before they are shown; None: nothing
        narrows it.

        That a row has a label at all, which is all that the owner needs, holds for every row that the pipeline wrote:
        to test it in the search would be to read the whole table.
        """
        if self.groups is not None:
            return self.sql()
        return self.sql().removeprefix(_LABELLED).removeprefix(" and ") or None

    def clauses(self, schema: tantivy.Schema) -> list[tuple[tantivy.Occur, tantivy.Query]]:
        """The condition over the BM25 index; it adds nothing to a score."""
        from tantivy import FieldType, Occur, Query

        needed: list[tantivy.Query] = []
        if self.groups is not None:
            needed.append(Query.term_set_query(schema, "access", sorted(self.groups)))
        if self.sources:
            needed.append(Query.term_set_query(schema, "source", list(self.sources)))
        if self.feeds:
            needed.append(Query.term_set_query(schema, "feed", list(self.feeds)))
        if self.since is not None or self.until is not None:
            low = None if self.since is None else _seconds(self.since)
            high = None if self.until is None else _seconds(self.until)
            needed.append(
                Query.range_query(schema, "created", FieldType.Integer, low, high, include_upper=high is None)
            )
        found = [(Occur.Must, Query.const_score_query(query, 0.0)) for query in needed]
        if self.without:
            found.append((Occur.MustNot, Query.term_set_query(schema, "source", list(self.without))))
        return found


def reader(groups: Collection[str] | None) -> frozenset[str] | None:
    """The labels that admit a reader of these groups: theirs and `public`. None stays None: the owner.

    Raises:
        TypeError: a bare text, which would be taken letter by letter.
    """
    if isinstance(groups, str):
        raise TypeError("groups must be a collection of labels, not one text; write {'ops'}")
    return None if groups is None else frozenset(groups) | {PUBLIC}


def known_sources(sources: Collection[str] | None) -> tuple[str, ...]:
    """Source keys, checked.

    Raises:
        ValueError: there is no such kind of source.
    """
    asked = (sources,) if isinstance(sources, str) else tuple(sources or ())
    wrong = sorted(set(asked) - set(SOURCES))
    if wrong:
        raise ValueError(f"no such source: {', '.join(wrong)}; there are: {', '.join(SOURCES)}")
    return asked


def _seconds(moment: datetime) -> int:
    # The index holds whole seconds, rounded down: a bound inside a second is rounded up to stay outside it.
    whole = int(moment.timestamp())
    return whole if moment.timestamp() == whole else whole + 1
