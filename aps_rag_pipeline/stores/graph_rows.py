"""What a row of the tables `nodes` and `edges` is on a Bolt server: label or relationship type, ends and properties.

Both directions of the audit compare in this form, so a float of the tables and a double of the server are one value.
The record number (`rid`) stays behind: it is the catalog's own, and the citation key says the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from aps_rag_pipeline.knowledge.entities import ENTITY_TYPES, RELATIONS
from aps_rag_pipeline.stores.bolt import GraphError

Row = Mapping[str, Any]
Properties = dict[str, Any]

NODE_PROPERTIES = ("node_id", "name", "key", "access")
EDGE_PROPERTIES = ("edge_id", "key", "source", "feed", "access", "passage_id", "extractor", "confidence")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class GraphNode:
    id: str
    label: str
    properties: Properties

    @property
    def digest(self) -> bytes:
        return _digest(self.label, self.properties)


@dataclass(frozen=True, slots=True)
class GraphEdge:
    id: str
    relation: str
    src: str
    dst: str
    properties: Properties

    @property
    def digest(self) -> bytes:
        return _digest(self.relation, self.src, self.dst, self.properties)


def node_of(row: Row) -> GraphNode:
    """A row of `nodes`.

    Raises:
        GraphError: its type is none of ours.
    """
    if row["type"] not in ENTITY_TYPES:
        raise GraphError(f"node {row['node_id']!r} has the type {row['type']!r}, which is none of {len(ENTITY_TYPES)}")
    properties = _properties(row, NODE_PROPERTIES)
    return GraphNode(properties["node_id"], row["type"], properties)


def edge_of(row: Row) -> GraphEdge:
    """A row of `edges`.

    Raises:
        GraphError: its relation is none of ours.
    """
    if row["relation"] not in RELATIONS:
        raise GraphError(
            f"edge {row['edge_id']!r} has the relation {row['relation']!r}, which is none of {len(RELATIONS)}"
        )
    properties = _properties(row, EDGE_PROPERTIES)
    return GraphEdge(properties["edge_id"], row["relation"], _plain(row["src"]), _plain(row["dst"]), properties)


def stored_node(label: str, properties: Row) -> GraphNode:
    """A node as the server gives it; one that is not ours has an id that no row has."""
    return GraphNode(str(properties.get("node_id", f"({label} without node_id)")), label, _all(properties))


def stored_edge(relation: str, src: Any, dst: Any, properties: Row) -> GraphEdge:
    edge_id = str(properties.get("edge_id", f"({relation} without edge_id)"))
    return GraphEdge(edge_id, relation, str(src), str(dst), _all(properties))


@dataclass(frozen=True)
class Compared:
    """Ids that one side lacks, and ids whose properties, type or ends differ. `twice`: ids the server holds twice."""

    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.changed or self.twice)

    def lines(self, noun: str) -> list[str]:
        found = {
            f"{noun} missing on the server": self.missing,
            f"{noun} on the server that the release does not have": self.extra,
            f"{noun} that differ": self.changed,
            f"{noun} that the server holds twice": self.twice,
        }
        return [f"{len(ids)} {said}: {_some(ids)}" for said, ids in found.items() if ids]


@dataclass(frozen=True)
class Differences:
    """What disagrees between the tables and their projection; false when nothing does."""

    nodes: Compared
    edges: Compared

    def __bool__(self) -> bool:
        return bool(self.nodes or self.edges)

    def lines(self) -> list[str]:
        """What disagrees, a sentence each, for people."""
        return [*self.nodes.lines("nodes"), *self.edges.lines("edges")]


def compare(wanted: Iterable[GraphNode | GraphEdge], stored: Iterable[GraphNode | GraphEdge]) -> Compared:
    """Both directions, by id and digest."""
    held: dict[str, bytes] = {}
    twice = set()
    for item in stored:
        if item.id in held:
            twice.add(item.id)
        held[item.id] = item.digest
    missing, changed = [], []
    for item in wanted:
        found = held.pop(item.id, None)
        if found is None:
            missing.append(item.id)
        elif found != item.digest:
            changed.append(item.id)
    return Compared(sorted(missing), sorted(held), sorted(changed), sorted(twice))


def _properties(row: Row, names: tuple[str, ...]) -> Properties:
    return {name: _plain(row[name]) for name in names if row.get(name) is not None}


def _all(properties: Row) -> Properties:
    return {name: _plain(value) for name, value in properties.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, list | tuple):
        return sorted(_plain(each) for each in value)
    return value


def _digest(*said: Any) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(said, order="sorted"), digest_size=16).digest()


def _some(ids: list[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more
