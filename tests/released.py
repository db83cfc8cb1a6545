"""A small release written by hand from plain records, so that `query` is tested without the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from aps_rag_pipeline.knowledge import identifiers
from aps_rag_pipeline.models import open_encoder
from aps_rag_pipeline.records import KEY_PREFIX
from aps_rag_pipeline.settings import Models
from aps_rag_pipeline.stores import releases, sparse, tables
from aps_rag_pipeline.stores.home import Home

MODEL = "test:hash-64"


@dataclass(frozen=True)
class Written:
    """A record as a test states it; `passages` are texts, or (kind, title, locator, text)."""

    source: str
    id: str
    title: str
    passages: tuple[str | tuple[str, str, str, str], ...]
    access: tuple[str, ...] = ("public",)
    feed: str = ""
    created_at: datetime | None = datetime(2025, 3, 14, 12, tzinfo=UTC)
    author: str = ""
    url: str = ""
    fields: str = "{}"
    links: str = "[]"
    several: bool = False

    @property
    def place(self) -> str:
        return self.feed or self.source

    @property
    def key(self) -> str:
        return (
            f"{KEY_PREFIX[self.source]}:{self.place}/{self.id}"
            if self.several
            else f"{KEY_PREFIX[self.source]}:{self.id}"
        )


def write_release(
    root: Path,
    records: list[Written],
    number: int = 1,
    located: tuple[tuple[str, str, tuple[str, ...]], ...] = (),
    **manifest: Any,
) -> Home:
    """Publish `records` as release `number` of the home at `root`; `located`: (component, place, labels) of edges."""
    import lancedb

    home = Home(root).create()
    encoder = open_encoder(Models(embedding=MODEL), home.models)
    description = encoder.description
    chunk_table = tables.chunks_table(description.fingerprint)
    rows: dict[str, list[dict[str, Any]]] = {tables.RECORDS: [], tables.PASSAGES: [], chunk_table: []}
    documents = []
    for rid, record in enumerate(records, start=1):
        _add(rid, record, rows, chunk_table, documents)
    _locate(located, rows)
    texts = [row["text"] for row in rows[chunk_table]]
    for row, vector in zip(rows[chunk_table], encoder.encode_passages(texts), strict=True):
        row["vector"] = vector
    schemas = {**tables.SCHEMAS, chunk_table: tables.chunks_schema(description.dimensions)}
    connection = lancedb.connect(home.lance)
    versions = {
        name: connection.create_table(
            name, pa.Table.from_pylist(rows.get(name, []), schema=schema), mode="overwrite"
        ).version
        for name, schema in schemas.items()
    }
    folder = releases.folder_of(home, number)
    folder.mkdir(parents=True)
    writer = sparse.SparseWriter(folder / "tantivy")
    writer.replace([], documents)
    writer.commit()
    writer.close()
    (folder / releases.LEASE).touch()
    made = releases.Manifest(
        number=number,
        changeset=number,
        published_at=datetime(2025, 6, 1, tzinfo=UTC),
        facility="Test ring",
        time_zone="America/Chicago",
        several_feeds={record.source: record.several for record in records},
        tables=versions,
        model=releases.ReleasedModel(
            description.name, description.fingerprint, description.dimensions, description.max_tokens
        ),
        counts={name: len(found) for name, found in rows.items()},
        **manifest,
    )
    (folder / releases.MANIFEST).write_bytes(msgspec.json.encode(made))
    return home


def _locate(located: tuple[tuple[str, str, tuple[str, ...]], ...], rows: dict[str, list[dict[str, Any]]]) -> None:
    for number, (component, place, access) in enumerate(located):
        labels = list(access)
        for kind, name in (("Component", component), ("Location", place)):
            node = {"node_id": f"{kind}:{name}", "type": kind, "name": name, "key": None, "access": labels}
            rows.setdefault(tables.NODES, []).append(node)
        rows.setdefault(tables.EDGES, []).append(
            {
                "rid": 0,
                "key": f"WRQ:{number}",
                "source": "work_requests",
                "feed": "work_requests",
                "access": labels,
                "edge_id": str(number),
                "src": f"Component:{component}",
                "relation": "LOCATED_IN",
                "dst": f"Location:{place}",
                "passage_id": None,
                "extractor": "structure:1",
                "confidence": 1.0,
            }
        )


def _add(
    rid: int,
    record: Written,
    rows: dict[str, list[dict[str, Any]]],
    chunk_table: str,
    documents: list[sparse.SparseDocument],
) -> None:
    origin = {
        "rid": rid,
        "key": record.key,
        "source": record.source,
        "feed": record.place,
        "access": list(record.access),
    }
    rows[tables.RECORDS].append(
        {
            **origin,
            "id": record.id,
            "title": record.title,
            "created_at": record.created_at,
            "modified_at": record.created_at,
            "author": record.author,
            "url": record.url,
            "fields": record.fields,
            "links": record.links,
            "content_hash": "",
            "seen_at": record.created_at,
        }
    )
    date = record.created_at.strftime("%Y-%m-%d") if record.created_at else ""
    head = " | ".join(piece for piece in (record.key, record.title, date) if piece)
    for ordinal, passage in enumerate(record.passages):
        kind, title, locator, text = passage if isinstance(passage, tuple) else ("prose", "", "", passage)
        passage_id = f"{record.key}#{ordinal}"
        rows[tables.PASSAGES].append(
            {
                **origin,
                "passage_id": passage_id,
                "ordinal": ordinal,
                "kind": kind,
                "title": title,
                "locator": locator,
                "created_at": record.created_at,
                "text": text,
            }
        )
        chunk = {
            **origin,
            "chunk_id": f"{passage_id}.0",
            "passage_id": passage_id,
            "created_at": record.created_at,
            "text": f"{head}\n{text}",
        }
        rows[chunk_table].append(chunk)
        names = dict.fromkeys(identifiers.normal(name) for name in (record.key, record.id))
        documents.append(
            sparse.SparseDocument(
                chunk_id=chunk["chunk_id"],
                rid=rid,
                source=record.source,
                feed=record.place,
                access=record.access,
                created_at=record.created_at,
                text=chunk["text"],
                mentions=identifiers.find(chunk["text"]),
                names=list(names),
            )
        )
