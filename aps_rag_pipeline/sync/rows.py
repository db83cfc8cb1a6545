"""Catalog rows → the Arrow batches of the released tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from aps_rag_pipeline.records import FORMER_IDS, decode_record, former_ids
from aps_rag_pipeline.stores.catalog import Catalog, from_iso, marks, unpack
from aps_rag_pipeline.stores.tables import PASSAGES, RECORDS, SCHEMAS, chunks_schema

Row = dict[str, Any]


def batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)


@lru_cache(maxsize=4096)
def labels(packed: str) -> tuple[str, ...]:
    """Labels as the catalog keeps them; thousands of records share a few sets of them."""
    return tuple(json.loads(packed))


def origin(row: Any) -> Row:
    """The columns that every released row carries of its record."""
    return {
        "rid": row["rid"],
        "key": row["key"],
        "source": row["source"],
        "feed": row["feed"],
        "access": list(labels(row["access"])),
    }


def served(catalog: Catalog, rids: Sequence[int]) -> dict[int, Any]:
    """Those of the records that are live and have labels: all others have no released rows."""
    rows = catalog.rows(
        "select rid, key, source, feed, id, title, access, created_at, modified_at, seen_at, content_hash, body "
        f"from records where rid in ({marks(rids)}) and removed = 0 and access <> '[]'",
        rids,
    )
    return {row["rid"]: row for row in rows}


def former_ids_in(body: bytes) -> tuple[str, ...]:
    """The ids that a record had before, from its packed body. Few have any, so few bodies are decoded."""
    unpacked = unpack(body)
    return former_ids(decode_record(unpacked).fields) if FORMER_IDS.encode() in unpacked else ()


def record_rows(records: dict[int, Any]) -> pa.RecordBatch:
    rows: list[Row] = []
    for row in records.values():
        body = decode_record(unpack(row["body"]))
        rows.append(
            {
                **origin(row),
                "id": row["id"],
                "title": row["title"],
                "created_at": from_iso(row["created_at"]),
                "modified_at": from_iso(row["modified_at"]),
                "author": body.author,
                "url": body.url,
                "fields": msgspec.json.encode(body.fields, order="deterministic").decode(),
                "links": msgspec.json.encode(body.links).decode(),
                "content_hash": row["content_hash"],
                "seen_at": from_iso(row["seen_at"]),
            }
        )
    return batch(rows, SCHEMAS[RECORDS])


def passage_rows(catalog: Catalog, records: dict[int, Any]) -> pa.RecordBatch:
    rows: list[Row] = []
    for row in catalog.connection.execute(
        f"select * from passages where rid in ({marks(records)}) order by rid, ordinal", tuple(records)
    ):
        record = records[row["rid"]]
        rows.append(
            {
                **origin(record),
                "passage_id": row["passage_id"],
                "ordinal": row["ordinal"],
                "kind": row["kind"],
                "title": row["title"],
                "locator": row["locator"],
                "created_at": from_iso(record["created_at"]),
                "text": unpack(row["text"]).decode(),
            }
        )
    return batch(rows, SCHEMAS[PASSAGES])


def chunk_texts(catalog: Catalog, records: dict[int, Any]) -> Iterator[tuple[Any, Any, str, datetime | None]]:
    """(chunk row, its record's row, text, creation time) of the chunks of these records."""
    for row in catalog.connection.execute(
        f"select * from chunks where rid in ({marks(records)}) order by chunk_id", tuple(records)
    ):
        record = records[row["rid"]]
        yield row, record, unpack(row["text"]).decode(), from_iso(record["created_at"])


def chunk_rows(catalog: Catalog, records: dict[int, Any], model: str, dimensions: int) -> Iterator[pa.RecordBatch]:
    """Chunks with their vectors, in batches.

    Raises:
        LookupError: a chunk has no vector yet; the embeddings stage must run first.
    """
    schema = chunks_schema(dimensions)
    vectors = {
        row["hash"]: row["vector"]
        for row in catalog.connection.execute(
            "select distinct e.hash, e.vector from chunks c join embeddings e on e.model = ? and e.hash = c.hash "
            f"where c.rid in ({marks(records)})",
            (model, *records),
        )
    }
    rows: list[Row] = []
    packed_vectors: list[bytes] = []
    for chunk, record, text, created in chunk_texts(catalog, records):
        packed = vectors.get(chunk["hash"])
        if packed is None:
            raise LookupError(f"chunk {chunk['chunk_id']} has no vector of model {model}")
        packed_vectors.append(packed)
        rows.append(
            {
                **origin(record),
                "chunk_id": chunk["chunk_id"],
                "passage_id": chunk["passage_id"],
                "created_at": created,
                "text": text,
            }
        )
    plain = batch(rows, schema.remove(schema.get_field_index("vector")))
    yield pa.RecordBatch.from_arrays([*plain.columns, _vector_column(packed_vectors, dimensions)], schema=schema)


def _vector_column(packed: list[bytes], dimensions: int) -> pa.FixedSizeListArray:
    """Half-precision vectors of the catalog as one column, converted all at once."""
    import numpy as np

    values = np.frombuffer(b"".join(packed), dtype=np.float16).astype(np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(values), dimensions)
