"""What a feed of the form `sql` says of itself: its query and how the listing may be narrowed."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from aps_rag_pipeline.sources.options import Options

#: Strings, quoted names and comments: what stands in them is no SQL.
_QUOTED = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \$(\w*)\$.*?\$\1\$ | --[^\n]* | /\*.*?\*/""", re.DOTALL | re.VERBOSE
)
_SELECTS = re.compile(r"[\s(]*(?:select|with)\b", re.IGNORECASE)
_WRITES = re.compile(
    r"\b(?:insert|into|merge|truncate|delete\s+from|update\s+(?:only\s+)?[\w.\s]+?\s+set"
    r"|for\s+(?:no\s+key\s+)?update|for\s+(?:key\s+)?share)\b",
    re.IGNORECASE,
)


class SqlOptions(Options):
    """`options` of a feed of the form `sql`."""

    query: str = Field(description="one SELECT that gives a row an item")
    page_rows: int = Field(1000, ge=1, le=100_000, description="rows fetched from the database at a time")
    trust_updated: bool = Field(True, description="whether a configured `updated` column moves with every edit")
    overlap_hours: float = Field(24, ge=0, description="resolution and disorder of `updated`; see DatabaseScan")
    duration_unit: str | None = Field(None, description="unit of a duration whose column names none")

    @field_validator("query")
    @classmethod
    def _one_select(cls, query: str) -> str:
        return one_select(query)


def one_select(query: str) -> str:
    """The query without the semicolon at its end.

    This keeps mistakes out. What keeps the database unchanged is that it is opened read-only and that the query is
    only ever run inside parentheses.

    Raises:
        ValueError: it is something else than one SELECT.
    """
    query = query.strip()
    bare = _QUOTED.sub(" ", query).rstrip()
    if bare.endswith(";"):
        query, bare = _without_end(query), bare[:-1].rstrip()
    if not _SELECTS.match(bare):
        raise ValueError("not a SELECT; a feed only reads")
    if ";" in bare:
        raise ValueError("more than one statement; write one SELECT")
    if re.search(r"['\"`]|/\*", bare):
        raise ValueError("a quote or a comment is not closed; a quote within a string is written twice ('')")
    if found := _WRITES.search(bare):
        raise ValueError(f"{' '.join(found[0].split())!r} writes or locks; a feed only reads")
    _check_parentheses(bare)
    return query


def _without_end(query: str) -> str:
    """The query up to its last semicolon, which only comments may follow."""
    ends = {i for i, char in enumerate(query) if char == ";"}
    for quoted in _QUOTED.finditer(query):
        ends -= set(range(*quoted.span()))
    return query[: max(ends)].rstrip()


def _check_parentheses(bare: str) -> None:
    depth = 0
    for char in bare:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            break
    if depth:
        raise ValueError("parentheses do not match")
