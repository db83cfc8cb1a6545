"""Log books in JSON: the shapes that facilities export, told apart by their keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.records import FieldValue, Link
from aps_rag_pipeline.sources.base import Failure, Ignored
from aps_rag_pipeline.sources.jsonfiles import JsonObject, Value, at, labels, mapping, sequence, string
from aps_rag_pipeline.sources.logbooks import olog
from aps_rag_pipeline.sources.logbooks.model import Document, Entry, Reading
from aps_rag_pipeline.sources.logbooks.pasted import take_pasted


@dataclass(frozen=True)
class Shape:
    """Where one dialect keeps what an entry says. A path is dotted; `a|b` is the first of the two that says something.

    `marks` are the keys that tell an entry of this dialect; `fields` maps our field names to paths, and what stands at
    `more` is fields as it is. `plain` turns an entry of a less regular form into the keys that the paths name.
    """

    marks: tuple[str, ...]
    id: str
    text: str
    author: str
    created: str
    title: str = ""
    modified: str = ""
    modified_by: str = ""
    event: str = ""
    parent: str = ""
    replies: str = ""
    related: str = ""
    group: str = ""
    state: str = ""
    files: str = "attachments"
    more: str = ""
    plain: Callable[[JsonObject], JsonObject] | None = None
    fields: dict[str, str] = field(default_factory=dict)


#: By name of the dialect, the most particular first.
SHAPES: dict[str, Shape] = {
    "bely": Shape(
        marks=("logEntry",),
        id="logId",
        text="logEntry",
        author="enteredByUsername",
        created="enteredOnDateTime",
        modified="lastModifiedOnDateTime",
        modified_by="lastModifiedByUsername",
        event="eventDateTime|eventTime",
        parent="parentLogId",
        replies="logReplies",
    ),
    "jlab": Shape(
        marks=("lognumber",),
        id="lognumber",
        text="body.content|body",
        author="author",
        created="created.timestamp|created",
        title="title",
        fields={"logbook": "books", "tags": "tags"},
    ),
    "ornl": Shape(
        marks=("entry_time", "content"),
        id="ID|id",
        text="content",
        author="author",
        created="entry_time",
        title="title",
        event="event_time",
        fields={"logbook": "logbook", "tags": "tags"},
    ),
    "als": Shape(
        marks=("subject", "details"),
        id="id",
        text="details",
        author="author",
        created="timestamp",
        title="subject",
        related="linkedto",
        fields={"category": "category", "tag": "tag", "level": "level"},
    ),
    "olog": Shape(
        marks=("createdDate", "owner"),
        id="id",
        text="text",
        author="author",
        created="created",
        title="title",
        modified="modified",
        event="event",
        group="group",
        state="state",
        more="properties",
        plain=olog.plain,
        fields={"logbook": "logbook", "tags": "tags", "level": "level"},
    ),
    "generic": Shape(
        marks=("text",),
        id="id|entry_id",
        text="text",
        author="author",
        created="timestamp|created|when",
        title="title",
        event="event_time",
        related="linked_to",
        fields={"tags": "tags", "category": "categories", "logbook": "logbook"},
    ),
}

#: Where entries keep their ids, whatever their shape.
_IDS = "id|logId|lognumber|ID|entry_id"
#: Values by which exports say "none".
_NOTHING = ("", "0")
#: Fields that hold several values, parted by commas where they are one text.
_LISTS = frozenset(("logbook", "tags", "category"))


def read_values(values: list[Value], unit: str, dialect: str | None) -> Reading:
    """The entries of JSON values: bundles, bare lists, single entries. `dialect` names the shape; None finds it."""
    for item in values:
        yield from _value(item.value, item.place, unit, dialect)


def _value(value: object, place: str, unit: str, dialect: str | None) -> Reading:
    if isinstance(value, list):
        if not value:
            yield Ignored(place, "an empty list")
        for number, item in enumerate(value, 1):
            yield from _value(item, f"{place}: item {number}", unit, dialect)
        return
    item = mapping(value)
    if "document" in item or "sections" in item:
        yield from _bundle(item, place, unit)
    elif isinstance(item.get("entries"), list):
        yield from _value(item["entries"], f"{place}: entries", unit, dialect)
    elif isinstance(item.get("logs"), list):
        yield from _value(item["logs"], f"{place}: logs", unit, dialect)
    elif isinstance(item.get("data"), dict):
        yield from _value(item["data"], place, unit, dialect)
    elif "logEntryResults" in item or "documentResults" in item:
        yield Ignored(place, "a search result, which holds matching lines only")
    else:
        yield from _entry(item, place, unit, dialect, Document())


def _bundle(bundle: JsonObject, place: str, unit: str) -> Reading:
    """A log document with its entries and those of its sections."""
    document = _document(bundle)
    groups = [("", bundle.get("entries"), f"{place}: entry")]
    for number, section in enumerate(sequence(bundle.get("sections")), 1):
        name = string(at(section, "name")) or f"section {number}"
        groups.append((name, at(section, "entries"), f"{place}: section {number} entry"))
    if not any(sequence(entries) for _, entries, _ in groups):
        yield Ignored(place, f"a log document without entries ({document.name or document.id or 'unnamed'})")
    for section_name, entries, where in groups:
        for number, entry in enumerate(sequence(entries), 1):
            for read in _entry(mapping(entry), f"{where} {number}", unit, "bely", document):
                if isinstance(read, Entry):
                    read.section = section_name
                yield read


def _document(bundle: JsonObject) -> Document:
    stated = mapping(bundle.get("document"))
    fields: dict[str, FieldValue] = {}
    for name, path in (("logbook", "entityTypeList"), ("system", "itemTypeList")):
        shown = [string(at(item, "displayName")) or string(at(item, "name")) for item in sequence(stated.get(path))]
        if any(shown):
            fields[name] = [text for text in shown if text]
    description = string(stated.get("description"))
    if description:
        fields["document_description"] = description
    own = next((labels(holder["access"]) for holder in (bundle, stated) if "access" in holder), None)
    return Document(string(stated.get("id")), string(stated.get("name")), fields, own)


def _entry(item: JsonObject, place: str, unit: str, dialect: str | None, document: Document) -> Reading:
    shape = SHAPES[dialect] if dialect in SHAPES else shape_of(item)
    if shape is None or not all(mark in item for mark in shape.marks):
        keys = ", ".join(sorted(item)[:8]) or "none"
        reason = (
            f"not a log entry of {'any known shape' if shape is None else 'the dialect ' + str(dialect)}; keys: {keys}"
        )
        stated = string(_first(item, _IDS))
        remedy = "leave the file out with `exclude`, or set options.dialect"
        yield Failure(unit, place, place, reason, remedy, True, stated)
        return
    yield from _shaped(item, shape, place, unit, document)


def _shaped(
    item: JsonObject, shape: Shape, place: str, unit: str, document: Document
) -> Iterator[Entry | Failure | Ignored]:
    item = shape.plain(item) if shape.plain else item
    if string(_first(item, shape.state)).lower() == "inactive":
        yield Ignored(place, "a log entry that was deleted (its state is Inactive)")
        return
    entry_id = string(_first(item, shape.id))
    if not entry_id:
        remedy = "export the entry with its id; without one it can be neither cited nor updated"
        yield Failure(unit, place, place, f"a log entry without {shape.id.split('|')[0]}", remedy, True)
        return
    entry = Entry(
        id=entry_id,
        text=clean(str(_first(item, shape.text) or "")),
        place=place,
        title=string(_first(item, shape.title)),
        author=string(_first(item, shape.author)),
        created=_raw_time(_first(item, shape.created)),
        modified=_raw_time(_first(item, shape.modified)),
        modified_by=string(_first(item, shape.modified_by)),
        event=_raw_time(_first(item, shape.event)),
        parent=string(_first(item, shape.parent)),
        document=document,
        fields=_fields(item, shape),
        files=_files(item.get(shape.files)),
        group=string(_first(item, shape.group)),
        access=labels(item["access"]) if "access" in item else None,
    )
    take_pasted(entry)
    related = string(_first(item, shape.related))
    if related not in _NOTHING:
        entry.links.append(Link("log_entry", f"BELY:{related}"))
    for number, reply in enumerate(sequence(item.get(shape.replies)), 1):
        for read in _shaped(mapping(reply), shape, f"{place}: reply {number}", unit, document):
            if isinstance(read, Entry):
                entry.replies.append(read)
            else:
                entry.whole &= not isinstance(read, Failure)
                yield read
    yield entry


def shape_of(item: JsonObject) -> Shape | None:
    """The shape whose marks an entry carries."""
    return next((shape for shape in SHAPES.values() if all(mark in item for mark in shape.marks)), None)


def _first(item: JsonObject, paths: str) -> object:
    for path in paths.split("|") if paths else ():
        value = at(item, path)
        if value not in (None, ""):
            return value
    return None


def _raw_time(value: object) -> object:
    """A time as stated; one that is built of parts (`{"days_ago": 3}`) as its JSON text."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def _fields(item: JsonObject, shape: Shape) -> dict[str, FieldValue]:
    fields: dict[str, FieldValue] = {}
    for name, path in shape.fields.items():
        value = at(item, path)
        if name in _LISTS:
            texts = value.split(",") if isinstance(value, str) else [string(part) for part in sequence(value)]
            several = [text.strip() for text in texts if text.strip() not in _NOTHING]
            if several:
                fields[name] = several
        elif string(value) not in _NOTHING:
            fields[name] = string(value)
    extra = mapping(at(item, shape.more)) if shape.more else {}
    return {**{name: string(value) for name, value in extra.items()}, **fields}


def _files(value: object) -> dict[str, str]:
    """Addresses of attached files by the keys that exports use, with the names they are shown by."""
    files: dict[str, str] = {}
    for item in sequence(value):
        address = (
            item if isinstance(item, str) else string(_first(mapping(item), "downloadPath|storedFilename|url|path"))
        )
        if address:
            files[address] = string(_first(mapping(item), "originalFilename|filename|name"))
    return files
