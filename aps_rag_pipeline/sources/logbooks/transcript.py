"""Voice logs in the text form of Spacelog: stamped blocks of what was said, a page of them one record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from aps_rag_pipeline.content.dates import parse_time
from aps_rag_pipeline.records import FieldValue, Link, Part, Record
from aps_rag_pipeline.settings import Feed
from aps_rag_pipeline.sources.base import Failure, Upsert
from aps_rag_pipeline.sources.jsonfiles import JsonObject, at, mapping, sequence, string

#: The file that describes the transcripts of its folder.
META = "_meta"
#: Blocks to a record where a transcript does not name its pages.
_BLOCKS = 25

_STAMP = re.compile(r"^\[(-?)((?:\d{2,3}:)?\d{2}:\d{2}:\d{2})\]\s*$")
_PROPERTY = re.compile(r"^_(\w+)\s*:\s*(.*)$")
_SPEAKER = re.compile(r"^([^\s:]{1,12}):\s")
_MARKUP = re.compile(r"\[\w+:(?:[^\[\]|]*\|)?([^\[\]|]*)\]|</?(?:su[bp]|[bi]|em)>")


@dataclass
class Block:
    """What one stamp stands over. `seconds` count from the start of the clock and may be negative."""

    stamp: str
    seconds: int
    properties: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Mission:
    """What the description beside a transcript says: its title, the start of its clock, its phases, who spoke."""

    title: str = ""
    start: datetime | None = None
    phases: tuple[tuple[int, int, str], ...] = ()
    speakers: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def read(meta: JsonObject, zone: tzinfo) -> Mission:
        phases = []
        for act in sequence(meta.get("acts")):
            bounds = [_seconds(string(bound)) for bound in sequence(at(act, "range"))]
            if len(bounds) == 2 and bounds[0] is not None and bounds[1] is not None:
                phases.append((bounds[0], bounds[1], string(at(act, "title"))))
        people = mapping(meta.get("characters"))
        named = {key: string(at(person, "name")) for key, person in people.items()}
        return Mission(string(at(meta, "copy.title")), _launch(meta.get("utc_launch_time"), zone), tuple(phases), named)

    def phase(self, seconds: int) -> str:
        return next((title for first, last, title in self.phases if first <= seconds < last), "")

    def moment(self, seconds: int) -> datetime | None:
        return self.start + timedelta(seconds=seconds) if self.start else None


def is_transcript(text: str) -> bool:
    """Whether a text begins with stamped blocks."""
    return any(_STAMP.match(line) for line in text[:4000].split("\n"))


def read_transcript(text: str, feed: Feed, mission: Mission, unit: str) -> Iterator[Upsert | Failure]:
    """One record a page, or for every few blocks where there are no pages; each block is a part."""
    used: dict[str, int] = {}
    for page, blocks in _pages(_blocks(text)):
        record_id = f"{unit}/page-{page}" if page else f"{unit}/{blocks[0].stamp}"
        used[record_id] = used.get(record_id, 0) + 1
        if used[record_id] > 1:
            record_id = f"{record_id}-{used[record_id]}"
        parts, links, failures = _parts(blocks, unit)
        yield from failures
        if parts:
            yield Upsert(
                _record(feed, mission, unit, record_id, page, blocks, parts, links),
                unit,
                f"{unit}: [{blocks[0].stamp}]",
            )


def _record(
    feed: Feed,
    mission: Mission,
    unit: str,
    record_id: str,
    page: str,
    blocks: list[Block],
    parts: list[Part],
    links: list[Link],
) -> Record:
    first, last = blocks[0], blocks[-1]
    phase = mission.phase(first.seconds)
    head = ", ".join(text for text in (mission.title or unit, phase, f"page {page}" if page else "") if text)
    said = sorted({match.group(1) for block in blocks for line in block.lines if (match := _SPEAKER.match(line))})
    fields: dict[str, FieldValue] = {
        "clock_start": first.stamp,
        "clock_end": last.stamp,
        "document": mission.title or unit,
    }
    if said:
        fields["speakers"] = [f"{key} ({mission.speakers[key]})" if mission.speakers.get(key) else key for key in said]
    if phase:
        fields["section"] = phase
    tapes = list(dict.fromkeys(block.properties["tape"] for block in blocks if "tape" in block.properties))
    if tapes:
        fields["tapes"] = tapes
    return Record(
        source="bely",
        feed=feed.name,
        id=record_id,
        title=f"{head}, {first.stamp} to {last.stamp}",
        created_at=mission.moment(first.seconds),
        modified_at=mission.moment(last.seconds),
        url=feed.url_template.replace("{id}", record_id) if feed.url_template else "",
        parts=tuple(parts),
        fields=fields,
        links=tuple(dict.fromkeys(links)),
        access=feed.access,
    )


def _parts(blocks: list[Block], unit: str) -> tuple[list[Part], list[Link], list[Failure]]:
    parts: list[Part] = []
    links: list[Link] = []
    failures: list[Failure] = []
    for block in blocks:
        lines = [_plain(line) for line in block.lines]
        lines += [f"({_plain(block.properties[key])})" for key in ("extra", "comment") if key in block.properties]
        try:
            images = json.loads(block.properties.get("images", "[]"))
        except ValueError as error:
            place = f"{unit}: [{block.stamp}]"
            failures.append(Failure(unit, place, place, f"_images is not JSON ({error})", "mend it in the file", True))
            images = []
        for image in sequence(images):
            lines.append(f"[picture: {string(at(image, 'caption')) or string(at(image, 'filename'))}]")
            if string(at(image, "url")):
                links.append(Link("url", string(at(image, "url")), string(at(image, "caption"))))
        if lines:
            parts.append(Part("transcript", "\n".join(lines), block.stamp))
    return parts, links, failures


def _blocks(text: str) -> Iterator[Block]:
    block: Block | None = None
    name = ""  # of the property that an indented line goes on with; empty: the line goes on with what is said
    for line in text.split("\n"):
        stamp = _STAMP.match(line)
        if stamp:
            if block:
                yield block
            name, label = "", line.strip()[1:-1]
            block = Block(label, _seconds(label) or 0)
        elif block is None or not line.strip():
            continue
        elif found := _PROPERTY.match(line):
            name = found.group(1)
            block.properties[name] = found.group(2).strip().strip('"')
        elif line[0] in " \t" and name:
            block.properties[name] += "\n" + line.strip()
        elif line[0] in " \t" and block.lines:
            block.lines[-1] += " " + line.strip()
        else:
            name = ""
            block.lines.append(line.strip())
    if block:
        yield block


def _pages(blocks: Iterator[Block]) -> Iterator[tuple[str, list[Block]]]:
    """Blocks by the page that they stand on; what stands before the first named page goes with it."""
    page, group = "", list[Block]()
    paged = False
    for block in blocks:
        named = block.properties.get("page", "")
        if (named and paged and named != page) or (not paged and not named and len(group) >= _BLOCKS):
            yield page, group
            group = []
        if named:
            page, paged = named, True
        group.append(block)
    if group:
        yield page, group


def _plain(line: str) -> str:
    return " ".join(_MARKUP.sub(lambda match: match.group(1) or "", line).split())


def _launch(value: object, zone: tzinfo) -> datetime | None:
    """The start of the clock: seconds since 1970, of which the first missions have few and negative ones, or a time."""
    if isinstance(value, int | float) and abs(value) < 1e11:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
    return parse_time(value, zone)


def _seconds(stamp: str) -> int | None:
    match = _STAMP.match(f"[{stamp}]")
    if not match:
        return None
    days, hours, minutes, seconds = ([0] + [int(part) for part in match.group(2).split(":")])[-4:]
    return (-1 if match.group(1) else 1) * (((days * 24 + hours) * 60 + minutes) * 60 + seconds)
