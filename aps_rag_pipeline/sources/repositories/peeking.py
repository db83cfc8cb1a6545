"""How large a file of a clone is, from the headers of its pack: nothing but its beginning is unpacked."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from dulwich.objects import RawObjectID
    from dulwich.pack import Pack

_BY_OFFSET, _BY_NAME = 6, 7
#: Unpacked bytes that hold both sizes at the head of a difference, and packed ones that are unpacked at a time.
_SIZES, _PIECE = 24, 4096


@dataclass(frozen=True)
class Peek:
    """`size` of a file and how it begins, which is empty where it is kept as a difference; `largest` is the size of the
    largest thing that has to be unpacked for it."""

    size: int
    largest: int
    head: bytes


def peek(packs: Iterable[Pack], name: RawObjectID, head_bytes: int) -> Peek | None:
    """What the packs tell of a file; None if it lies in none of them.

    Raises:
        Exception: of dulwich and zlib, where a pack is damaged.
    """
    for pack in packs:
        try:
            offset = pack.index.object_offset(name)
        except KeyError:
            continue
        with open(pack.data.path, "rb") as file:
            return _peek(pack, file, offset, head_bytes)
    return None


def _peek(pack: Pack, file: BinaryIO, offset: int, head_bytes: int) -> Peek:
    sizes: list[int] = []
    largest, seen = 0, set[int]()
    while True:
        if offset in seen:
            raise ValueError("a ring of differences")
        seen.add(offset)
        file.seek(offset)
        kind, length = _header(file)
        largest = max(largest, length)
        if kind == _BY_OFFSET:
            offset -= _distance(file)
        elif kind == _BY_NAME:
            offset = pack.index.object_offset(_name(file.read(pack.object_format.oid_length)))
        else:
            head = b"" if sizes else _unpacked(file, head_bytes)
            return Peek(sizes[0] if sizes else length, largest, head)
        base, made = _two_sizes(_unpacked(file, _SIZES))
        largest = max(largest, base, made)
        sizes.append(made)


def _name(data: bytes) -> RawObjectID:
    from dulwich.objects import RawObjectID

    return RawObjectID(data)


def _header(file: BinaryIO) -> tuple[int, int]:
    """Kind and unpacked length of an object."""
    byte = file.read(1)[0]
    kind, length, shift = byte >> 4 & 7, byte & 15, 4
    while byte & 128:
        byte = file.read(1)[0]
        length |= (byte & 127) << shift
        shift += 7
    return kind, length


def _distance(file: BinaryIO) -> int:
    """How far before a difference its base lies."""
    byte = file.read(1)[0]
    found = byte & 127
    while byte & 128:
        byte = file.read(1)[0]
        found = (found + 1 << 7) + (byte & 127)
    return found


def _two_sizes(data: bytes) -> tuple[int, int]:
    """The sizes of base and result at the head of a difference."""
    found, size, shift = [], 0, 0
    for byte in data:
        size |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            found.append(size)
            size = shift = 0
    return found[0], found[1]


def _unpacked(file: BinaryIO, most: int) -> bytes:
    unpacking, found = zlib.decompressobj(), b""
    while len(found) < most and not unpacking.eof and (piece := file.read(_PIECE)):
        found += unpacking.decompress(piece, most - len(found))
    return found
