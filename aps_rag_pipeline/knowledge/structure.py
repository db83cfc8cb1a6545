"""The structural extractor: nodes and edges from the fields and links that sources state, and from nothing else.

What each field and each kind of link means is in the tables below; the code only looks things up. A value that names
nothing, and a reference to a record that is not there, give no edge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from aps_rag_pipeline.knowledge.entities import (
    RECORD_TYPES,
    EdgeEvidence,
    EntityType,
    NodeMention,
    Relation,
    edge_id,
    entity,
    record_node,
)
from aps_rag_pipeline.records import FieldValue, Link, Record

EXTRACTOR = "structure:1"

#: Citation key of the record that a stated reference (kind of link, target) means, or None when there is none.
Resolve = Callable[[str, str], str | None]

STATED = 1.0
#: Two columns of one row say that the things belong together, though no column says so in words.
SAME_ROW = 0.8


@dataclass(frozen=True)
class EntityField:
    """A field that names things: the record has `relation` to a `kind` of that name."""

    field: str
    relation: Relation
    kind: EntityType


@dataclass(frozen=True)
class ReferenceField:
    """A field that names other records; `kinds` are the kinds of link as which its values are looked up, in order."""

    field: str
    relation: Relation
    kinds: tuple[str, ...]


_F = EntityField
#: Fields by source. `author` stands for the record's own author.
ENTITY_FIELDS: dict[str, tuple[EntityField, ...]] = {
    "bely": (_F("author", "REPORTED_BY", "Person"), _F("system", "MENTIONS", "System")),
    "icms": (
        _F("author", "REPORTED_BY", "Person"),
        _F("authors", "REPORTED_BY", "Person"),
        _F("system", "MENTIONS", "System"),
        _F("component", "MENTIONS", "Component"),
        _F("location", "LOCATED_IN", "Location"),
    ),
    "work_requests": (
        _F("author", "REPORTED_BY", "Person"),
        _F("requester", "REPORTED_BY", "Person"),
        _F("assignee", "MENTIONS", "Person"),
        _F("system", "AFFECTS", "System"),
        _F("component", "AFFECTS", "Component"),
        _F("location", "LOCATED_IN", "Location"),
        _F("cause", "CAUSED_BY", "Fault"),
        _F("fault", "MENTIONS", "Fault"),
    ),
    "teams": (_F("author", "REPORTED_BY", "Person"), _F("participants", "MENTIONS", "Person")),
    "downtime": (
        _F("author", "REPORTED_BY", "Person"),
        _F("reporter", "REPORTED_BY", "Person"),
        _F("system", "AFFECTS", "System"),
        _F("component", "AFFECTS", "Component"),
        _F("location", "LOCATED_IN", "Location"),
        _F("cause", "CAUSED_BY", "Fault"),
    ),
    "sdds_docs": (_F("author", "REPORTED_BY", "Person"), _F("tool", "MENTIONS", "Tool")),
    "code": (_F("author", "REPORTED_BY", "Person"), _F("tool", "PART_OF", "Tool")),
    "wiki": (
        _F("author", "REPORTED_BY", "Person"),
        _F("system", "MENTIONS", "System"),
        _F("component", "MENTIONS", "Component"),
    ),
    "epics": (
        _F("group", "PART_OF", "System"),
        _F("groups", "PART_OF", "System"),
        _F("system", "PART_OF", "System"),
        _F("device", "MONITORS", "Component"),
        _F("component", "MONITORS", "Component"),
        _F("location", "LOCATED_IN", "Location"),
        _F("sector", "LOCATED_IN", "Location"),
    ),
}

_R = ReferenceField
#: Fields of any source whose name says what the record they name is to this one.
REFERENCE_FIELDS: tuple[ReferenceField, ...] = (
    _R("resolved_by", "RESOLVED_BY", ("work_request", "log_entry", "document")),
    _R("fixed_by", "RESOLVED_BY", ("work_request", "log_entry", "document")),
    _R("caused_by", "CAUSED_BY", ("downtime", "work_request", "log_entry")),
    _R("procedure", "FOLLOWS_PROCEDURE", ("document", "wiki")),
    _R("procedures", "FOLLOWS_PROCEDURE", ("document", "wiki")),
    _R("downtime", "DURING", ("downtime",)),
    _R("downtime_id", "DURING", ("downtime",)),
    _R("supersedes", "SUPERSEDES", ("supersedes",)),
)

#: (field, relation, field) of one row: a component and the system and place that the row names with it.
ROW_PAIRS: tuple[tuple[EntityField, Relation, EntityField], ...] = (
    (_F("component", "AFFECTS", "Component"), "PART_OF", _F("system", "AFFECTS", "System")),
    (_F("component", "AFFECTS", "Component"), "LOCATED_IN", _F("location", "LOCATED_IN", "Location")),
)
_ROW_SOURCES = ("work_requests", "downtime")

LINK_RELATIONS: dict[str, Relation] = {
    "reply_to": "REPLIES_TO",
    "parent": "PART_OF",
    "supersedes": "SUPERSEDES",
    "work_request": "REFERENCES",
    "downtime": "REFERENCES",
    "log_entry": "REFERENCES",
    "document": "REFERENCES",
    "chat": "REFERENCES",
    "wiki": "REFERENCES",
    "file": "REFERENCES",
    "url": "REFERENCES",
    "process_variable": "MENTIONS",
}
#: (source, kind of link) that mean something narrower there.
_NARROWER: dict[tuple[str, str], Relation] = {
    ("epics", "process_variable"): "REFERENCES",
    ("code", "file"): "CALLS",
}
#: What a source may write on a link instead of a caption: the relation itself.
_WRITTEN: dict[str, Relation] = {
    "caused by": "CAUSED_BY",
    "root cause": "CAUSED_BY",
    "resolved by": "RESOLVED_BY",
    "fixed by": "RESOLVED_BY",
    "resolution": "RESOLVED_BY",
    "follows procedure": "FOLLOWS_PROCEDURE",
    "procedure": "FOLLOWS_PROCEDURE",
    "during": "DURING",
    "supersedes": "SUPERSEDES",
    "replaces": "SUPERSEDES",
    "part of": "PART_OF",
    "calls": "CALLS",
}

_PROCEDURE = re.compile(r"\b(?:procedures?|checklists?|work instructions?|sop)\b", re.IGNORECASE)
_KIND_FIELDS = ("type", "document_type", "doc_type", "kind", "category", "class", "status", "tags")
_MAY_BE_PROCEDURE = ("icms", "wiki")
_NO_NAME = frozenset(
    ["-", "--", "n/a", "na", "none", "null", "nan", "unknown", "unspecified", "other", "tbd", "various"]
)
_SEVERAL = re.compile(r"[;|\n]")
_PV_FIELD = re.compile(r"\.[A-Z][A-Z0-9_$]*$")


def extract(
    record: Record, key: str, passage_ids: Sequence[str], resolve: Resolve
) -> tuple[list[NodeMention], list[EdgeEvidence]]:
    """The nodes a record mentions, itself first, each once, and the edges it is evidence of.

    `key` is the record's citation key and `passage_ids` are its passages in order: what fields and links state is
    evidenced by the first. `resolve` gives the key of the record that a reference means. The same input gives the same
    output in the same order.
    """
    graph = _Graph(key, passage_ids[0] if passage_ids else None, record_node(key, record_type(record)))
    for rule in ENTITY_FIELDS[record.source]:
        for target in _entities(record, rule):
            graph.add(graph.own, rule.relation, target)
    if record.source in _ROW_SOURCES:
        _row_pairs(record, graph)
    if record.source == "sdds_docs" and (tool := _tool_of_manual(record)) is not None:
        graph.add(graph.own, "MENTIONS", tool)
    for reference in REFERENCE_FIELDS:
        for node in _records_named(record.fields.get(reference.field), reference.kinds, resolve):
            graph.add(graph.own, reference.relation, node)
    for link in record.links:
        target_node = _target(link, resolve)
        if target_node is not None:
            graph.add(graph.own, _relation(record.source, link, target_node), target_node)
    return list(graph.nodes.values()), list(graph.edges.values())


def record_type(record: Record) -> EntityType:
    """What a record is: the type of its source, or a procedure where a document says of itself that it is one."""
    if record.source in _MAY_BE_PROCEDURE:
        said = [record.title, *(text for name in _KIND_FIELDS for text in _texts(record.fields.get(name)))]
        if any(_PROCEDURE.search(text) for text in said):
            return "Procedure"
    return RECORD_TYPES[record.source]


class _Graph:
    """What one record says, each thing once."""

    def __init__(self, key: str, passage_id: str | None, own: NodeMention) -> None:
        self.key, self.passage_id, self.own = key, passage_id, own
        self.nodes = {own.node_id: own}
        self.edges: dict[str, EdgeEvidence] = {}

    def add(self, src: NodeMention, relation: Relation, dst: NodeMention, confidence: float = STATED) -> None:
        if src.node_id == dst.node_id:
            return
        for node in (src, dst):
            self.nodes.setdefault(node.node_id, node)
        found = edge_id(self.key, src.node_id, relation, dst.node_id, self.passage_id, EXTRACTOR)
        edge = EdgeEvidence(found, src.node_id, relation, dst.node_id, self.passage_id, EXTRACTOR, confidence)
        self.edges.setdefault(found, edge)


def _row_pairs(record: Record, graph: _Graph) -> None:
    for left, relation, right in ROW_PAIRS:
        things, places = _entities(record, left), _entities(record, right)
        if len(places) == 1:  # of several systems no column says whose the component is
            for thing in things:
                graph.add(thing, relation, places[0], SAME_ROW)


def _tool_of_manual(record: Record) -> NodeMention | None:
    """The tool a manual is of: its title is one word, and its file has that name."""
    stem = PurePosixPath(record.id).stem
    return entity("Tool", record.title) if record.title.casefold() == stem.casefold() and " " not in stem else None


def _entities(record: Record, rule: EntityField) -> list[NodeMention]:
    value = record.author if rule.field == "author" else record.fields.get(rule.field)
    texts = (name for text in _texts(value) for name in (_people(text) if rule.kind == "Person" else [text]))
    found = (entity(rule.kind, text) for text in texts if text.strip().casefold() not in _NO_NAME)
    return list(dict.fromkeys(node for node in found if node is not None))


def _texts(value: FieldValue | None) -> list[str]:
    """The single values of a field; a number that names something is a name, a measured one or a flag is not."""
    if value is None or isinstance(value, bool | float):
        return []
    if isinstance(value, list):
        return [text for text in value if text.strip()]
    return [text for text in _SEVERAL.split(str(value)) if text.strip()]


def _people(text: str) -> Iterator[str]:
    """`A. Smith, B. Jones` are two people, `A. Smith, Some Laboratory` at least one, `Smith, John` is one.

    A longer list of single words cannot be parted with certainty and names nobody.
    """
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    if pieces and " " in pieces[0] and not pieces[0][0].islower():
        yield from (piece for piece in pieces if " " in piece)
    elif len(pieces) <= 2:
        yield text


def _records_named(value: FieldValue | None, kinds: tuple[str, ...], resolve: Resolve) -> Iterator[NodeMention]:
    for text in _texts(value):
        for token in dict.fromkeys((text.strip(), *re.split(r"[,\s]+", text.strip()))):
            key = next((found for kind in kinds if token and (found := resolve(kind, token))), None)
            if key is not None:
                yield record_node(key)


def _target(link: Link, resolve: Resolve) -> NodeMention | None:
    """The node a link leads to: a record that is there, or a process variable, which exists without a record too."""
    names = [link.target]
    if link.kind == "process_variable":
        names.append(_PV_FIELD.sub("", link.target))
    for name in dict.fromkeys(names):
        key = resolve(link.kind, name)
        if key is not None:
            return record_node(key)
    if link.kind == "process_variable" and "$" not in names[-1]:
        return entity("ProcessVariable", names[-1])
    return None


def _relation(source: str, link: Link, target: NodeMention) -> Relation:
    written = _WRITTEN.get(" ".join(link.text.split()).strip(":").casefold())
    if written is not None:
        return written
    narrower = _NARROWER.get((source, link.kind))
    if narrower == "CALLS" and target.type != "CodeModule":
        narrower = None
    return narrower or LINK_RELATIONS[link.kind]
