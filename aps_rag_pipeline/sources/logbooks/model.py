"""What every form of log book comes down to: entries with their replies, in documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from aps_rag_pipeline.records import FieldValue, Link
from aps_rag_pipeline.sources.base import Failure, Ignored

#: What a server writes into its log when a document is made or saved; nobody wrote it to be read.
AUDIT_LINE = re.compile(r"User: \S+ \| (?:Created|Updated|Deleted): .*\[Item Id: \d+\]", re.DOTALL)


@dataclass(frozen=True)
class Document:
    """The log document that entries stand in. `access` is None where it states no labels of its own."""

    id: str = ""
    name: str = ""
    fields: dict[str, FieldValue] = field(default_factory=dict)
    access: tuple[str, ...] | None = None


@dataclass
class Entry:
    """A log entry as its form states it: times unparsed, text in Markdown, replies nested.

    `files` maps the address of a file that the entry names outside its text to the name it is shown by; `pasted` holds
    the bytes of pictures that the text itself carried, by the address that stands there now. `group` names the
    conversation it belongs to where its form does not say whom it answers. It is not `whole` where a reply in it could
    not be read.
    """

    id: str
    text: str
    place: str
    title: str = ""
    author: str = ""
    created: object = None
    modified: object = None
    modified_by: str = ""
    event: object = None
    parent: str = ""
    section: str = ""
    document: Document = field(default_factory=Document)
    replies: list[Entry] = field(default_factory=list)
    fields: dict[str, FieldValue] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    pasted: dict[str, bytes] = field(default_factory=dict)
    group: str = ""
    whole: bool = True
    access: tuple[str, ...] | None = None

    def thread(self) -> Iterator[Entry]:
        """The entry, then its replies and theirs in reading order."""
        waiting = [self]
        while waiting:
            entry = waiting.pop()
            yield entry
            waiting.extend(reversed(entry.replies))


#: What reading a form gives: entries, and what was no entry.
Reading = Iterable[Entry | Failure | Ignored]


def gather(entries: list[Entry]) -> list[Entry]:
    """Top-level entries: a reply that stands beside its parent instead of in it is moved there.

    A reply whose parent is not among them stays, as does one of a ring of replies. The first entry of a group is the
    one that the others answer.
    """
    known: dict[str, Entry] = {}
    _answer_first_of_group(entries)
    for top in entries:
        for entry in top.thread():
            known.setdefault(entry.id, entry)
    tops: list[Entry] = []
    for entry in entries:
        parent = known.get(entry.parent) if entry.parent else None
        if known[entry.id] is not entry and parent is not None:
            continue  # it is nested in its parent already
        if parent is None or _leads_to(entry, parent, known):
            tops.append(entry)
        elif all(reply.id != entry.id for reply in parent.replies):
            parent.replies.append(entry)
    return tops


def by_id(entry: Entry) -> tuple[int, str]:
    """Sort key: numbers by their size, other ids behind them by their text."""
    number = int(entry.id) if entry.id.isascii() and entry.id.isdigit() and len(entry.id) < 20 else 1 << 64
    return number, entry.id


def _answer_first_of_group(entries: list[Entry]) -> None:
    first: dict[str, Entry] = {}
    for entry in sorted(entries, key=by_id):
        if entry.group and not entry.parent and first.setdefault(entry.group, entry) is not entry:
            entry.parent = first[entry.group].id


def _leads_to(entry: Entry, start: Entry, known: dict[str, Entry]) -> bool:
    """Whether the chain of parents from `start` comes to `entry`, or goes round in a ring."""
    seen: set[str] = set()
    above: Entry | None = start
    while above is not None and above.id not in seen:
        if above is entry:
            return True
        seen.add(above.id)
        above = known.get(above.parent) if above.parent else None
    return above is not None
