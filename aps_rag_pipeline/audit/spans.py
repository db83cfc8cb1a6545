"""Records in stretches of their numbers, so that memory does not grow with the corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from aps_rag_pipeline.stores.damage import reading

#: Records that are compared together.
SPAN = 1000
_ALL = 2**31 - 1


@dataclass(frozen=True)
class Span:
    """The record numbers above `after` and up to `upto`, of which the catalog knows `rids`. The first and the last are
    open, so that every number an index may hold lies in exactly one."""

    after: int | None
    upto: int | None
    rids: Sequence[int]

    @property
    def condition(self) -> str:
        """As a filter on a table of LanceDB."""
        return bounds("rid", self.after, self.upto)


def spans(rids: Iterable[int], size: int = SPAN) -> Iterator[Span]:
    """Cut ascending record numbers into stretches."""
    after: int | None = None
    held: list[int] = []
    for rid in rids:
        if len(held) == size:
            yield Span(after, held[-1], held)
            after, held = held[-1], []
        held.append(rid)
    yield Span(after, None, held)


def bounds(column: str, after: int | str | None, upto: int | str | None) -> str:
    sides = [f"{column} {sign} {_literal(end)}" for sign, end in ((">", after), ("<=", upto)) if end is not None]
    return " and ".join(sides) or "true"


def select(table: Any, condition: str, columns: Sequence[str]) -> pa.Table:
    """Rows of a table of LanceDB.

    Raises:
        DamagedStoreError: a file of it is not what was written.
    """
    with reading(Path(table.uri)):
        found: pa.Table = table.search().where(condition).select(list(columns)).limit(_ALL).to_arrow()
    return found


def _literal(value: int | str) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
