"""Damaged copies of every sample: none ends a run, none hangs it, and each ends as records or as a named failure.

What is done to a file is drawn from a seed that the file's name and the round give, so that a finding can be had again.
"""

from __future__ import annotations

import io
import random
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Complete, Cursor, Failure, Ignored, SourceContext, Upsert
from aps_rag_pipeline.sources.files import FileSource
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.workshop import Workshop

#: Folder of samples -> the sources that read files of these kinds.
READERS = {
    "documents": ("icms",),
    "downtime": ("downtime", "work_requests", "icms"),
    "work_requests": ("work_requests",),
    "sdds": ("sdds_docs",),
    "epics": ("epics", "icms"),
    "displays": ("code", "epics"),
    "wiki": ("wiki", "icms"),
    "teams": ("teams",),
    "logbook": ("bely",),
    "bely": ("bely",),
}
PAIRS = [(folder, source) for folder, sources in READERS.items() for source in sources]
#: One file may take this long on a crowded machine, its limit and the damage of a kill included.
PATIENCE_S = 30.0
LIMITS = Limits(parse_timeout_s=20, parse_memory_mb=768, max_unpacked_mb=128)
#: What a short round reads: files of each pair, none larger.
FEW, SMALL = 7, 60_000

Damage = Callable[[bytes, random.Random], bytes]


def truncated(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def flipped(data: bytes, draw: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(draw.choice((1, 8, 64, max(1, len(data) // 100)))):
        out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
    return bytes(out)


def spliced(data: bytes, draw: random.Random) -> bytes:
    start, end, to = (draw.randrange(len(data)) for _ in range(3))
    stretch = data[min(start, end) : max(start, end)]
    return data[:to] + stretch + data[to + draw.choice((0, len(stretch))) :]


def repeated(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data))
    stretch = data[start : start + draw.choice((1, 4, 40, 400))]
    return data[:start] + stretch * draw.choice((9, 500, 4000)) + data[start:]


def overwritten(data: bytes, draw: random.Random) -> bytes:
    """Numbers in a binary file become the largest and smallest there are."""
    start = draw.randrange(len(data))
    return data[:start] + draw.choice((b"\xff", b"\0", b"\x7f")) * draw.choice((1, 4, 8)) + data[start + 8 :]


DAMAGES: tuple[Damage, ...] = (truncated, flipped, spliced, repeated, overwritten)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """A zip file is damaged inside its members as a rule: outside, its checksums tell."""
    damage = draw.choice(DAMAGES)
    if not data.startswith(b"PK\x03\x04") or draw.random() < 0.2:
        return damage(data, draw)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as whole, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as copy:
        members = whole.infolist()
        chosen = draw.sample(members, min(len(members), draw.choice((1, 1, 3))))
        for member in members:
            content = whole.read(member)
            copy.writestr(member.filename, damage(content, draw) if member in chosen and content else content)
    return out.getvalue()


def samples(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "SOURCE.txt" and path.stat().st_size
    ]


def write(paths: list[Path], target: Path, root: Path, rounds: range) -> list[str]:
    names = []
    for path in paths:
        data = path.read_bytes()
        for number in rounds:
            name = f"{number}/{path.relative_to(root)}"
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            draw = random.Random(zlib.crc32(name.encode()))
            (target / name).write_bytes(damaged(data, draw))
            names.append(name)
    return names


def reader(source: str, location: Path, blobs: Path, names: list[str]) -> FileSource:
    if source == "code":
        shop = Workshop(location / "checkout")
        shop.commit({name: (location / name).read_bytes() for name in names}, 0)
        shop.repo.close()
        location = location / "checkout"
    feed = Feed(name="fuzz", source=source, location=location)
    opened = open_source(feed, SourceContext(ZoneInfo("UTC"), BlobStore(blobs), LIMITS))
    assert isinstance(opened, FileSource)
    return opened


def check(source: FileSource) -> dict[str, int]:
    """Read the feed; what its files ended as is counted."""
    units = {unit.name for unit in source.units(source.listing())}
    ended: set[str] = set()
    counts = {"records": 0, "failures": 0, "ignored": 0}
    stream = source.changes(None)
    last: object = None
    for change in timed(stream):
        last = change
        if isinstance(change, Upsert):
            counts["records"] += 1
        elif isinstance(change, Failure):
            counts["failures"] += 1
            assert change.reason
            assert change.remedy or not change.permanent, change
            ended.add(change.unit)
        elif isinstance(change, Ignored):
            counts["ignored"] += 1
        elif isinstance(change, Complete):
            ended.add(change.unit)
    assert isinstance(last, Cursor)
    assert units <= ended, sorted(units - ended)[:5]
    return counts


def timed(stream: Iterator[object]) -> Iterator[object]:
    start = time.monotonic()
    for change in stream:
        took = time.monotonic() - start
        assert took < PATIENCE_S, f"{took:.0f} s before {str(change)[:300]}"
        yield change
        start = time.monotonic()


@pytest.mark.parametrize(("folder", "source"), PAIRS)
def test_damaged_samples_end_as_records_or_failures(folder: str, source: str, shared: Path, tmp_path: Path) -> None:
    root = shared / folder
    small = [path for path in samples(root) if path.stat().st_size <= SMALL]
    some = random.Random(folder).sample(small, min(FEW, len(small)))
    names = write(some, tmp_path / "feed", root, range(1))
    counts = check(reader(source, tmp_path / "feed", tmp_path / "blobs", names))
    assert sum(counts.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "source"), PAIRS)
def test_every_sample_damaged_in_many_ways(folder: str, source: str, shared: Path, tmp_path: Path) -> None:
    root = shared / folder
    for path in samples(root):
        target = tmp_path / "feed"
        rounds = range(1, 6 if path.stat().st_size < 300_000 else 3)
        names = write([path], target, root, rounds)
        check(reader(source, target, tmp_path / "blobs", names))
        for name in names:
            (target / name).unlink()
        if source == "code":
            _remove(target / "checkout")


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()
