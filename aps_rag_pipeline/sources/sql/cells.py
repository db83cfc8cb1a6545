"""Values of a database as cells of a table: NULL, decimals, times with and without a zone, bytes, JSON, arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from math import isfinite

from aps_rag_pipeline.content.tables import Cell
from aps_rag_pipeline.content.text import clean, decode, is_binary

#: Bytes of so few are an id (a UUID in binary form), not a document.
_MAX_ID_BYTES = 32
_LARGEST_WHOLE = 1e15


def cell_of(value: object, zone: tzinfo, encoding: str | None = None) -> Cell:
    """A value as the table reader would give it; empty for NULL, for what is no number, and for bytes without text.

    A time with a zone is told in `zone`, so that neither the server's zone nor the session's shows in a record; one
    without stays as it is and is read in the feed's zone later on. A decimal is its exact text, which becomes a
    number in the fields and keeps its zeros in the text.
    """
    if isinstance(value, str):
        return clean(value).strip()
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(zone) if value.tzinfo else value
    if isinstance(value, bool | int | date | time | timedelta):
        return value
    if isinstance(value, float):
        if not isfinite(value):
            return ""
        return int(value) if value.is_integer() and abs(value) < _LARGEST_WHOLE else value
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else ""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return "" if is_binary(data) or _is_noise(data) else decode(data, encoding).strip()
    return _other(value, zone, encoding)


def id_cell(value: object, zone: tzinfo, encoding: str | None = None) -> Cell:
    """Like `cell_of`; short bytes that are no text are told in hexadecimal digits."""
    cell = cell_of(value, zone, encoding)
    if cell == "" and isinstance(value, bytes | bytearray | memoryview) and 0 < len(value) <= _MAX_ID_BYTES:
        return bytes(value).hex()
    return cell


def bytes_left_out(value: object, cell: Cell) -> int:
    """How many bytes of a value are no text and stand in no cell."""
    return len(value) if cell == "" and isinstance(value, bytes | bytearray | memoryview) else 0


def _is_noise(data: bytes) -> bool:
    """Whether bytes are neither UTF-8 nor mostly printable."""
    head = data[:8192]
    try:
        head.decode("utf-8")
        control = sum(byte < 9 or 13 < byte < 32 for byte in head)
    except UnicodeDecodeError:
        control = sum(byte < 9 or 13 < byte < 32 or 127 <= byte < 160 for byte in head)
    return control * 20 > len(head)


def _other(value: object, zone: tzinfo, encoding: str | None) -> Cell:
    if callable(read := getattr(value, "read", None)):  # a locator of a CLOB or BLOB
        return cell_of(read(), zone, encoding)
    if isinstance(value, list | tuple | set) and all(isinstance(item, str | int | float | Decimal) for item in value):
        return clean(", ".join(str(item) for item in value)).strip()
    if isinstance(value, Mapping | list | tuple | set):
        plain = list(value) if isinstance(value, set | tuple) else value
        return clean(json.dumps(plain, ensure_ascii=False, sort_keys=True, default=str))
    return clean(str(value)).strip()
