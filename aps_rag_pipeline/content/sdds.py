"""SDDS files: what their headers define, and the little of their first page that says what a file is about.

The header is text whatever the data are, so it is read here for all versions and types; values of the first page come
through pysdds where it reads the file.
"""

from __future__ import annotations

import bz2
import gzip
import io
import logging
import lzma
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from aps_rag_pipeline.sources.base import UnreadableError

if TYPE_CHECKING:
    from pysdds import SDDSFile

log = logging.getLogger(__name__)

Kind = Literal["parameter", "column", "array"]

#: Bytes (unpacked) within which a header has to end.
HEADER_BYTES = 8_000_000
#: Up to this size a file is read for its first page: text (about a second for a megabyte), binary.
PAGE_BYTES = (1_000_000, 8_000_000)
_XZ_MEMORY = 256 << 20
_PACKED: dict[bytes, str] = {b"\x1f\x8b": "gz", b"\xfd7zXZ\x00": "xz", b"BZh": "bz2"}
_MAGIC = re.compile(rb"SDDS(\d+)\s*$", re.MULTILINE)
_MAX_INCLUDES = 20
#: pysdds keeps a line between calls in a place that all threads share.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Element:
    """A parameter, column or array. `value` is its fixed value; `dimensions` counts for arrays alone."""

    kind: Kind
    name: str
    type: str
    units: str = ""
    description: str = ""
    value: str = ""
    dimensions: int = 0


@dataclass
class Header:
    """What a header says. `includes` are files it takes header lines from, `missing` those that were not found.

    `data` are the values of its &data command, `marks` its `!#` lines, `size` is where the data begin (in bytes).
    """

    version: int
    text: str = ""
    contents: str = ""
    elements: list[Element] = field(default_factory=list)
    mode: str = ""
    endian: str = ""
    includes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    data: dict[str, str] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)
    size: int = 0

    def of(self, kind: Kind) -> list[Element]:
        return [element for element in self.elements if element.kind == kind]


@dataclass(frozen=True)
class FirstPage:
    """Number of pages, rows of the first one, its parameters' values and its text columns' distinct values."""

    pages: int
    rows: int
    parameters: dict[str, str]
    texts: dict[str, tuple[str, ...]]


#: Finds a file that a header includes, by the name that stands in it; None where there is no such file.
Find = Callable[[str], bytes | None]


def is_sdds(path: Path) -> bool:
    """Whether a file, packed or not, begins like an SDDS file.

    Raises:
        UnreadableError: it is packed and cannot be unpacked.
    """
    return _MAGIC.match(unpacked(path, 64)) is not None


def packing(path: Path) -> str:
    """How a file is packed, by its first bytes: gz, xz, bz2, or "" for not at all."""
    with path.open("rb") as file:
        head = file.read(6)
    return next((name for magic, name in _PACKED.items() if head.startswith(magic)), "")


def unpacked(path: Path, limit: int) -> bytes:
    """The first `limit` bytes of a file, unpacked; nothing beyond them is unpacked.

    Raises:
        UnreadableError: the packed data are damaged, or want too much memory.
        OSError: the file cannot be opened.
    """
    kind = packing(path)
    try:
        with path.open("rb") as file:
            if kind == "xz":
                return b"".join(_unpack_xz(file, limit))
            if kind == "gz":
                return gzip.open(file).read(limit)
            return bz2.open(file).read(limit) if kind == "bz2" else file.read(limit)
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise UnreadableError(f"the packed data are damaged ({error})", remedy="pack the file again") from error
    except OSError as error:
        if error.errno is None:  # bz2 says so when the data are damaged
            raise UnreadableError(f"the packed data are damaged ({error})", remedy="pack the file again") from error
        raise


def _unpack_xz(file: BinaryIO, limit: int) -> Iterator[bytes]:
    unpacker = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
    while limit > 0 and not unpacker.eof:
        packed = file.read(65536) if unpacker.needs_input else b""
        if unpacker.needs_input and not packed:
            raise EOFError("it ends too early")
        data = unpacker.decompress(packed, limit)
        limit -= len(data)
        yield data


def read_header(data: bytes, find: Find = lambda name: None) -> Header:
    """The header at the beginning of `data`.

    Raises:
        UnreadableError: no SDDS file, a command that does not end, no `&data` command.
    """
    magic = _MAGIC.match(data)
    if magic is None:
        raise UnreadableError("does not begin with SDDS and a version number")
    header = Header(int(magic.group(1)))
    # Offsets stay those of the bytes; texts are decoded one by one.
    end = _commands(data.decode("latin-1"), magic.end(), header, find, _MAX_INCLUDES)
    if not header.mode:
        raise UnreadableError("the header has no &data command", remedy="write the file again")
    header.size = data.find(b"\n", end) + 1 or len(data)
    return header


_SKIP = re.compile(r"(?:\s+|![^\n]*)*")
_COMMAND = re.compile(r"&(\w+)")
_END = re.compile(r"(?:[\s,]+|![^\n]*)*&end\b")
_FIELD = re.compile(
    r"(?:[\s,]+|![^\n]*)*(\w+)\s*=[ \t]*"
    r'("(?:[^"\\]|\\.)*"|(?:(?!,|\n|&|\s\w+\s*=).)*)',
    re.DOTALL,
)
_MARK = re.compile(r"^!#\s*([\w-]+)", re.MULTILINE)


def _commands(text: str, at: int, header: Header, find: Find, budget: int) -> int:
    """Read commands up to &data; gives where they end."""
    while not header.mode:
        start = at
        at = _skipped(text, at)
        header.marks += _MARK.findall(text, start, at)
        command = _COMMAND.match(text, at)
        if command is None:
            return at
        name = command.group(1).lower()
        values, at = _values(text, command.end(), name)
        if name == "include":
            _include(values.get("filename", ""), header, find, budget)
        else:
            _apply(name, values, header)
    return at


def _skipped(text: str, at: int) -> int:
    found = _SKIP.match(text, at)
    return found.end() if found else at


def _values(text: str, at: int, command: str) -> tuple[dict[str, str], int]:
    values: dict[str, str] = {}
    while True:
        end = _END.match(text, at)
        if end:
            return values, end.end()
        found = _FIELD.match(text, at)
        if found is None:
            raise UnreadableError(
                f"the header's &{command} command is damaged or does not end", remedy="write it again"
            )
        values[found.group(1).lower()] = _text(found.group(2))
        at = found.end()


def _text(raw: str) -> str:
    raw = raw.strip()
    if len(raw) > 1 and raw[0] == raw[-1] == '"':
        raw = re.sub(r"\\(.)", r"\1", raw[1:-1], flags=re.DOTALL)
    data = raw.encode("latin-1")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("cp1252", "backslashreplace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _include(name: str, header: Header, find: Find, budget: int) -> None:
    header.includes.append(name)
    data = find(name) if budget > 0 and len(header.includes) <= _MAX_INCLUDES else None
    if data is None:
        header.missing.append(name)
    else:
        _commands(data.decode("latin-1"), 0, header, find, budget - 1)


def _apply(name: str, values: dict[str, str], header: Header) -> None:
    if name == "description":
        header.text, header.contents = values.get("text", ""), values.get("contents", "")
    elif name == "data":
        header.mode = values.get("mode", "binary").lower()
        marked = next((mark.removesuffix("-endian") for mark in header.marks if mark.endswith("-endian")), "")
        header.endian = values.get("endian", marked).lower()
        header.data = values
    elif name in ("parameter", "column", "array"):
        kind: Kind = "parameter" if name == "parameter" else "column" if name == "column" else "array"
        dimensions = values.get("dimensions", "1")
        header.elements.append(
            Element(
                kind,
                values.get("name", ""),
                values.get("type", ""),
                values.get("units", ""),
                values.get("description", ""),
                values.get("fixed_value", ""),
                (int(dimensions) if dimensions.isdigit() else 1) if kind == "array" else 0,
            )
        )


def read_first_page(path: Path, header: Header) -> FirstPage | None:
    """The first page of a file that pysdds reads; None where it does not, or where the file is too large for that."""
    limit = PAGE_BYTES[header.mode == "binary"] + header.size
    try:
        data = unpacked(path, limit + 1)
    except UnreadableError:
        return None
    if len(data) > limit or header.missing:
        return None
    import pysdds
    from pysdds.readers import readers

    with _one_at_a_time:
        # A file that broke off leaves a line in here, which would begin the next file.
        readers.pushback_line_buf.clear()
        try:
            return _first_page(pysdds.read(_Bytes(_plain_header(header) + data[header.size :])))
        except Exception as error:  # pysdds raises whatever comes up; the header has been read without it
            log.debug("%s: pysdds: %s", path, error)
            return None


def _plain_header(header: Header) -> bytes:
    """The header as pysdds reads it: one command a line, no blanks around `=`, no files included, ASCII."""
    lines = [f"SDDS{header.version}", *(f"!# {mark}" for mark in header.marks)]
    for element in header.elements:
        values = {"name": element.name, "type": element.type, "fixed_value": element.value}
        if element.kind == "array":
            values["dimensions"] = str(element.dimensions)
        lines.append(_command(element.kind, {name: value for name, value in values.items() if value}))
    lines.append(_command("data", header.data))
    return ("\n".join(lines) + "\n").encode("ascii", "backslashreplace")


def _command(name: str, values: dict[str, str]) -> str:
    escaped = {key: re.sub(r'(["\\])', r"\\\1", value) for key, value in values.items()}
    return f"&{name} " + ", ".join(f'{key}="{value}"' for key, value in escaped.items()) + " &end"


class _Bytes(io.BytesIO):
    """Bytes in memory, with the look-ahead that pysdds asks of a stream."""

    def peek(self, size: int = 1) -> bytes:
        return self.getvalue()[self.tell() : self.tell() + size]

    def __len__(self) -> int:
        return self.getbuffer().nbytes


def _first_page(file: SDDSFile) -> FirstPage:
    values = {each.name: _value(each.data[0]) for each in file.parameters if len(each.data)}
    columns = [(column.name, column.type, column.data[0]) for column in file.columns if len(column.data)]
    texts = {name: _distinct(data) for name, kind, data in columns if kind == "string"}
    return FirstPage(file.n_pages, len(columns[0][2]) if columns else 0, values, texts)


def _value(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else _text(str(value).encode().decode("latin-1"))


def _distinct(values: Iterable[object]) -> tuple[str, ...]:
    found = (_value(value) for value in values)
    return tuple(dict.fromkeys(value for value in found if value))
