"""The released tables and their columns: what the pipeline writes to LanceDB and what `query` may rely on.

Every row carries its record's number (`rid`), citation key, source, feed and labels, so that filters and removals need
no join. `access` is a list of labels of which any admits; a record without labels has no rows at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

RECORDS = "records"
PASSAGES = "passages"
NODES = "nodes"
EDGES = "edges"

_TIME = pa.timestamp("us", tz="UTC")
_LABELS = pa.list_(pa.string())

_ORIGIN = [
    pa.field("rid", pa.int64(), nullable=False),
    pa.field("key", pa.string(), nullable=False),
    pa.field("source", pa.string(), nullable=False),
    pa.field("feed", pa.string(), nullable=False),
    pa.field("access", _LABELS, nullable=False),
]

SCHEMAS: dict[str, pa.Schema] = {
    RECORDS: pa.schema(
        [
            *_ORIGIN,
            pa.field("id", pa.string()),
            pa.field("title", pa.string()),
            pa.field("created_at", _TIME),
            pa.field("modified_at", _TIME),
            pa.field("author", pa.string()),
            pa.field("url", pa.string()),
            pa.field("fields", pa.string()),  # JSON object of the source's own values
            pa.field("links", pa.string()),  # JSON list of {kind, target, text}
            pa.field("content_hash", pa.string()),
            pa.field("seen_at", _TIME),  # when the pipeline first met this version
        ]
    ),
    PASSAGES: pa.schema(
        [
            *_ORIGIN,
            pa.field("passage_id", pa.string(), nullable=False),  # <key>#<ordinal>
            pa.field("ordinal", pa.int32()),
            pa.field("kind", pa.string()),
            pa.field("title", pa.string()),
            pa.field("locator", pa.string()),
            pa.field("created_at", _TIME),
            pa.field("text", pa.string()),
        ]
    ),
    NODES: pa.schema(
        [
            pa.field(
                "node_id", pa.string(), nullable=False
            ),  # <type>:<name in lower case>, or the citation key of a record
            pa.field("type", pa.string(), nullable=False),
            pa.field("name", pa.string(), nullable=False),
            pa.field("key", pa.string()),  # citation key where the node is a record
            pa.field("access", _LABELS, nullable=False),  # union over the records that evidence it
        ]
    ),
    EDGES: pa.schema(
        [
            *_ORIGIN,  # of the record that evidences the edge
            pa.field("edge_id", pa.string(), nullable=False),
            pa.field("src", pa.string(), nullable=False),
            pa.field("relation", pa.string(), nullable=False),
            pa.field("dst", pa.string(), nullable=False),
            pa.field("passage_id", pa.string()),
            pa.field("extractor", pa.string(), nullable=False),
            pa.field("confidence", pa.float32(), nullable=False),
        ]
    ),
}


def chunks_table(model_fingerprint: str) -> str:
    """Name of the chunk table of one embedding model."""
    return "chunks_" + re.sub(r"[^A-Za-z0-9]+", "_", model_fingerprint)


def chunks_schema(dimensions: int) -> pa.Schema:
    return pa.schema(
        [
            *_ORIGIN,
            pa.field("chunk_id", pa.string(), nullable=False),  # <passage id>.<ordinal>
            pa.field("passage_id", pa.string(), nullable=False),
            pa.field("created_at", _TIME),
            pa.field("text", pa.string(), nullable=False),  # header line and body, exactly as embedded
            pa.field("vector", pa.list_(pa.float32(), dimensions), nullable=False),
        ]
    )


def sql_list(values: Iterable[str | int]) -> str:
    """Values as the inside of an SQL `in (...)`."""
    return ", ".join(str(v) if isinstance(v, int) else "'" + v.replace("'", "''") + "'" for v in values)
