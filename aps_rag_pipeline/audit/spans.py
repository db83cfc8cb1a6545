"""Rows in stretches of the ids that they are told by, so that memory does not grow with the corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from aps_rag_pipeline.stores.damage import reading

Id = TypeVar("Id", int, str)

#: Records, or nodes, that are compared together.
SPAN = 1000
_ALL = 2**31 - 1


@dataclass(frozen=True)
class Span(Generic[Id]):
    """The ids in `column` above `after` and up to `upto`, of which the catalog knows `ids`. The first and the last are
    open, so that every id that an index may hold lies in exactly one. One that stands `alone` is of its `ids` only."""

    column: str
    after: Id | None
    upto: Id | None
    ids: Sequence[Id]
    alone: bool = False

    @property
    def condition(self) -> str:
        """As a filter on a table of LanceDB or of the catalog."""
        if self.alone:
            return f"{self.column} in ({', '.join(map(_literal, self.ids))})"
        ends = ((">", self.after), ("<=", self.upto))
        sides = [f"{self.column} {sign} {_literal(end)}" for sign, end in ends if end is not None]
        return " and ".join(sides) or "true"


def spans(column: str, ids: Iterable[Id], *, alone: bool = False) -> Iterator[Span[Id]]:
    """Cut ascending ids into stretches; without any there is one that is open on both sides, and none `alone`."""
    after: Id | None = None
    held: list[Id] = []
    for each in ids:
        if len(held) == SPAN:
            yield Span(column, after, held[-1], held, alone)
            after, held = held[-1], []
        held.append(each)
    if held or not alone:
        yield Span(column, after, None, held, alone)


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
