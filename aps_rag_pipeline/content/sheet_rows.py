"""The sheets of a workbook on their way between processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta

import msgspec

from aps_rag_pipeline.content.workbooks import Cell, Sheet

#: Times go as (their kind, how they are written).
_Sent = str | int | float | bool | tuple[str, str]
_decode = msgspec.msgpack.Decoder(list[tuple[str, list[tuple[int, list[_Sent]]]]]).decode


def pack_sheets(sheets: Iterable[Sheet]) -> bytes:
    return msgspec.msgpack.encode(
        [(sheet.name, [(number, [_sent(cell) for cell in cells]) for number, cells in sheet.rows]) for sheet in sheets]
    )


def unpack_sheets(data: bytes) -> list[Sheet]:
    """Raises msgspec.MsgspecError: these are no sheets."""
    return [Sheet(name, _rows(rows)) for name, rows in _decode(data)]


def _rows(rows: list[tuple[int, list[_Sent]]]) -> Iterator[tuple[int, list[Cell]]]:
    for number, cells in rows:
        yield number, [_cell(cell) if isinstance(cell, tuple) else cell for cell in cells]


def _sent(cell: Cell) -> _Sent:
    if isinstance(cell, datetime):
        return "datetime", cell.isoformat()
    if isinstance(cell, date):
        return "date", cell.isoformat()
    if isinstance(cell, time):
        return "time", cell.isoformat()
    if isinstance(cell, timedelta):
        return "timedelta", f"{cell.days} {cell.seconds} {cell.microseconds}"
    return cell


def _cell(sent: tuple[str, str]) -> Cell:
    kind, text = sent
    match kind:
        case "datetime":
            return datetime.fromisoformat(text)
        case "date":
            return date.fromisoformat(text)
        case "time":
            return time.fromisoformat(text)
        case "timedelta":
            days, seconds, microseconds = map(int, text.split())
            return timedelta(days, seconds, microseconds)
    return text
