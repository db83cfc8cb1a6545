"""The types of the knowledge graph, how its nodes and edges are named, and what an extractor gives.

A record is a node under its citation key; everything else that records speak of is a node under `Type:<normal name>`.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from aps_rag_pipeline.knowledge import identifiers
from aps_rag_pipeline.records import KEY_PREFIX

EntityType = Literal[
    "Fault",
    "Component",
    "System",
    "Location",
    "ProcessVariable",
    "LogEntry",
    "WorkRequest",
    "DowntimeEvent",
    "Procedure",
    "Document",
    "ChatThread",
    "CodeModule",
    "Tool",
    "Person",
]
Relation = Literal[
    "CAUSED_BY",
    "RESOLVED_BY",
    "FOLLOWS_PROCEDURE",
    "AFFECTS",
    "PART_OF",
    "LOCATED_IN",
    "MONITORS",
    "REPORTED_BY",
    "REFERENCES",
    "DURING",
    "CALLS",
    "REPLIES_TO",
    "SUPERSEDES",
    "MENTIONS",
]
ENTITY_TYPES: tuple[EntityType, ...] = get_args(EntityType)
RELATIONS: tuple[Relation, ...] = get_args(Relation)

#: What a record of a source is, unless the record itself says something narrower.
RECORD_TYPES: dict[str, EntityType] = {
    "bely": "LogEntry",
    "icms": "Document",
    "work_requests": "WorkRequest",
    "teams": "ChatThread",
    "downtime": "DowntimeEvent",
    "sdds_docs": "Document",
    "code": "CodeModule",
    "wiki": "Document",
    "epics": "ProcessVariable",
}
_TYPE_OF_PREFIX = {KEY_PREFIX[source]: kind for source, kind in RECORD_TYPES.items()}

#: A longer value is a sentence in the wrong column, not the name of a thing.
MAX_NAME = 120
_EDGE_PUNCTUATION = " \t\"'`.,;:()[]{}<>"


class NodeMention(msgspec.Struct, frozen=True, order=True):
    """A node that a record speaks of. `key` is the citation key where the node is itself a record."""

    node_id: str
    type: EntityType
    name: str
    key: str | None = None


class EdgeEvidence(msgspec.Struct, frozen=True, order=True):
    """One statement of a record: `src` -`relation`-> `dst`, the passage it stands in, who found it and how surely."""

    edge_id: str
    src: str
    relation: Relation
    dst: str
    passage_id: str | None
    extractor: str
    confidence: float


def entity_name(text: str) -> str | None:
    """The printable name of an entity: one line, no surrounding punctuation; None where there is no name in it."""
    name = " ".join(unicodedata.normalize("NFKC", text).split()).strip(_EDGE_PUNCTUATION)
    return name if name and len(name) <= MAX_NAME and any(char.isalnum() for char in name) else None


def entity_id(kind: EntityType, name: str) -> str:
    """The node id of an entity that is no record. Names that differ in case or blanks alone are one entity."""
    if kind == "ProcessVariable":
        return f"{kind}:{identifiers.normal(name)}"
    plain = re.sub(r"[\s_]+", " ", name).strip().casefold()
    return f"{kind}:{plain}"


def entity(kind: EntityType, text: str) -> NodeMention | None:
    """A mention of an entity that is no record, or None when the text holds no name."""
    name = entity_name(text)
    return None if name is None else NodeMention(entity_id(kind, name), kind, name)


def record_node(key: str, kind: EntityType | None = None) -> NodeMention:
    """A mention of a record. Its name is its key, never its title: a public record may mention a restricted one."""
    return NodeMention(key, kind or _TYPE_OF_PREFIX[key.partition(":")[0]], key, key)


def settle(mentions: Iterable[NodeMention]) -> NodeMention:
    """The one node that several mentions of the same id stand for, whatever their order.

    Only a record itself can say that it is more than its source's usual type (a document that is a procedure), so the
    narrower type wins; of several spellings of a name the first in sorted order does.

    Raises:
        ValueError: no mention.
    """
    found = sorted(set(mentions))
    if not found:
        raise ValueError("a node needs at least one mention")
    first = found[0]
    if first.key is None:
        return first
    usual = _TYPE_OF_PREFIX[first.key.partition(":")[0]]
    return next((mention for mention in found if mention.type != usual), first)


def edge_id(key: str, src: str, relation: Relation, dst: str, passage_id: str | None, extractor: str) -> str:
    """The same statement of the same record by the same kind of extractor has the same id; its version is left out."""
    kind = extractor.partition(":")[0]
    said = "\x1f".join((key, src, relation, dst, passage_id or "", kind))
    return hashlib.blake2b(said.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
