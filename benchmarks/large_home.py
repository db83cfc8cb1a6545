"""A home of hundreds of thousands of chunks in minutes, made from a small synced one.

Embedding 200,000 texts takes the better part of an hour, so records are varied instead: a varied chunk has the vector
of a real chunk mixed with two of its near neighbours and a little noise, and a text made of their sentences, under a
key of its own. Dense and sparse regions, the shares of sources and the words stay those of the real corpus. The home is
written through the stores' write side, block by block, and released; there is no catalog in it, so it cannot be synced.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from aps_rag_pipeline.knowledge import identifiers
from aps_rag_pipeline.models import open_encoder
from aps_rag_pipeline.settings import Models
from aps_rag_pipeline.stores import releases, sparse, tables
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync.publish import lookups

BLOCK = 5_000
#: What it took, in the finished home.
MADE = "made.json"
GROUPS = ("ops", "rf", "controls", "safety", "management")
PUBLIC_SHARE = 0.7
NEIGHBOURS = 10
YEARS, END = 10, datetime(2026, 11, 1, tzinfo=UTC)
#: Mean weight of the chunk itself and of two near neighbours in a mix, and the length of the noise added to it.
MIX, NOISE = (6.0, 2.0, 1.0), 0.12
TWO_CHUNKS = 0.16
_NUMBERED = {"bely": "7{:06d}", "work_requests": "8{:06d}", "downtime": "2031-{:06d}", "icms": "APS_9{:06d}"}
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass
class Real:
    """What is varied: real chunks with their records, vectors (n, dimensions), and each one's nearest neighbours."""

    chunks: list[dict[str, Any]]
    records: list[dict[str, Any]]
    vectors: np.ndarray
    near: np.ndarray
    edges: dict[str, list[dict[str, Any]]]
    types: dict[str, str]
    bodies: list[list[str]]


def read(base: Home, texts: Sequence[str]) -> tuple[Real, releases.Manifest, dict[str, pa.Table]]:
    with releases.open_release(base) as release:
        manifest = release.manifest
        whole = {name: release.table(name).to_arrow() for name in manifest.tables}
    name = tables.chunks_table(manifest.model.fingerprint)
    found = whole[name]
    vectors = found["vector"].combine_chunks().values.to_numpy().reshape(found.num_rows, -1)
    chunks = found.drop_columns(["vector"]).to_pylist()
    by_key = {row["key"]: row for row in whole[tables.RECORDS].to_pylist()}
    if texts:
        encoder = open_encoder(Models(embedding=manifest.model.name), base.models)
        vectors = np.vstack([vectors, encoder.encode_passages([encoder.tokens.head(text) for text in texts])])
        tellers = [row for row in chunks if row["source"] in ("bely", "downtime", "icms")]
        chunks += [{**tellers[n % len(tellers)], "text": f"\n{text}"} for n, text in enumerate(texts)]
    edges: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in whole[tables.EDGES].to_pylist():
        edges[row["key"]].append(row)
    types = {row["key"]: row["type"] for row in whole[tables.NODES].to_pylist() if row["key"]}
    bodies = [_SENTENCE.split(row["text"].partition("\n")[2]) for row in chunks]
    real = Real(chunks, [by_key[row["key"]] for row in chunks], vectors, _nearest(vectors), edges, types, bodies)
    return real, manifest, whole


def _nearest(vectors: np.ndarray) -> np.ndarray:
    found = np.empty((len(vectors), NEIGHBOURS), dtype=np.int64)
    for start in range(0, len(vectors), 1024):
        close = vectors[start : start + 1024] @ vectors.T
        close[np.arange(len(close)), np.arange(start, start + len(close))] = -1
        found[start : start + 1024] = np.argpartition(-close, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    return found


def mixes(real: Real, picked: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of length 1 near the picked ones, and the neighbours that are in them, shape (n, 2)."""
    others = np.take_along_axis(real.near[picked], rng.integers(NEIGHBOURS, size=(len(picked), 2)), axis=1)
    weights = rng.dirichlet(MIX, len(picked)).astype(np.float32)
    mixed = weights[:, :1] * real.vectors[picked]
    for place in range(2):
        mixed += weights[:, place + 1 : place + 2] * real.vectors[others[:, place]]
    noise = rng.standard_normal(mixed.shape, dtype=np.float32) * np.float32(NOISE / np.sqrt(mixed.shape[1]))
    mixed = mixed / np.linalg.norm(mixed, axis=1, keepdims=True) + noise
    return (mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float32), others


class Block:
    """Rows of some varied records, by table, and their BM25 documents."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.vectors: list[np.ndarray] = []
        self.documents: list[sparse.SparseDocument] = []

    def add(self, real: Real, rid: int, at: int, mixed: np.ndarray, others: np.ndarray, rng: Any) -> None:
        """A record like the one of chunk `at`, with one chunk a row of `mixed` (n, dimensions)."""
        like = real.records[at]
        source = like["source"]
        identity = _NUMBERED[source].format(rid) if source in _NUMBERED else f"{like['id']}:R{rid}"
        key = like["key"].removesuffix(like["id"]) + identity
        access = ["public"] if rng.random() < PUBLIC_SHARE else [GROUPS[int(rng.integers(len(GROUPS)))]]
        created = END - timedelta(seconds=int(rng.integers(YEARS * 365 * 86_400)))
        origin = {"rid": rid, "key": key, "source": source, "feed": like["feed"], "access": access}
        title = (like["title"] or "").replace(like["id"], identity)
        passage_id = f"{key}#0"
        own = {"id": identity, "title": title, "created_at": created, "modified_at": created}
        self.rows[tables.RECORDS].append({**like, **origin, **own, "links": "[]"})
        texts = []
        for ordinal, (vector, other) in enumerate(zip(mixed, others, strict=True)):
            sentences = [*real.bodies[at], *real.bodies[other[0]][:2], *real.bodies[other[1]][:1]]
            body = " ".join(sentences[int(n)] for n in rng.permutation(len(sentences)))
            texts.append(body.replace(like["id"], identity))
            text = f"{key} | {title} | {created:%Y-%m-%d}\n{texts[-1]}"
            chunk = {**origin, "chunk_id": f"{passage_id}.{ordinal}", "passage_id": passage_id, "created_at": created}
            self.rows["chunks"].append({**chunk, "text": text})
            self.vectors.append(vector)
            mentions = dict.fromkeys([*identifiers.find(text[: text.index("\n")]), *_mentioned(sentences)])
            self.documents.append(_document(chunk, text, identity, list(mentions)))
        place = {"passage_id": passage_id, "ordinal": 0, "kind": "prose", "title": title, "locator": ""}
        self.rows[tables.PASSAGES].append({**origin, **place, "created_at": created, "text": "\n".join(texts)})
        kind = real.types.get(like["key"], "LogEntry")
        self.rows[tables.NODES].append({"node_id": key, "type": kind, "name": key, "key": key, "access": access})
        for number, edge in enumerate(real.edges.get(like["key"], ())):
            ends = {end: key if edge[end] == like["key"] else edge[end] for end in ("src", "dst")}
            self.rows[tables.EDGES].append(
                {**edge, **origin, **ends, "edge_id": f"{rid}.{number}", "passage_id": passage_id}
            )


def _mentioned(sentences: Sequence[str]) -> Iterator[str]:
    for sentence in sentences:
        yield from _find(sentence)


@lru_cache(maxsize=1 << 18)
def _find(sentence: str) -> list[str]:
    return identifiers.find(sentence)


def _document(chunk: dict[str, Any], text: str, identity: str, mentions: Sequence[str]) -> sparse.SparseDocument:
    return sparse.SparseDocument(
        chunk_id=chunk["chunk_id"],
        rid=chunk["rid"],
        source=chunk["source"],
        feed=chunk["feed"],
        access=chunk["access"],
        created_at=chunk["created_at"],
        text=text,
        mentions=mentions,
        names=list(dict.fromkeys(identifiers.normal(name) for name in (chunk["key"], identity))),
    )


def varied(real: Real, chunks: int, first_rid: int, seed: int) -> Iterator[Block]:
    """Blocks with `chunks` varied chunks together."""
    rng = np.random.default_rng(seed)
    rid = first_rid
    while chunks > 0:
        size = min(BLOCK, chunks)
        picked = rng.integers(len(real.chunks), size=size)
        picked[1:][rng.random(size - 1) < TWO_CHUNKS] = -1  # a second chunk of the record before
        for place in range(1, size):
            if picked[place] < 0:
                picked[place] = picked[place - 1]
        mixed, others = mixes(real, picked, rng)
        block, start = Block(), 0
        for place in range(1, size + 1):
            if place == size or picked[place] != picked[start]:
                block.add(real, rid, int(picked[start]), mixed[start:place], others[start:place], rng)
                start, rid = place, rid + 1
        yield block
        chunks -= size


def originals(real: Real, whole: dict[str, pa.Table], chunk_table: str) -> Block:
    """The real corpus itself, so that its questions have their answers in the large one."""
    block = Block()
    for name, table in whole.items():
        if name != chunk_table:
            block.rows[name] = table.to_pylist()
    ids = {row["key"]: row["id"] for row in block.rows[tables.RECORDS]}
    count = whole[chunk_table].num_rows
    block.rows["chunks"] = real.chunks[:count]
    block.vectors = list(real.vectors[:count])
    block.documents = [
        _document(row, row["text"], ids[row["key"]], identifiers.find(row["text"])) for row in block.rows["chunks"]
    ]
    return block


def write(base: Home, out: Path, chunks: int, texts: Sequence[str] = (), seed: int = 1) -> dict[str, float]:
    """A released home in `out`, with the seconds by step in its `made.json`; gives them.

    It is made beside `out` and moved there when it is whole, so that what was broken off is not taken for one.

    Raises:
        FileExistsError: there is something in `out`'s place; it is left as it is.
    """
    if os.path.lexists(out):
        raise FileExistsError(f"{out} is there already; remove it, or name another place for the new home")
    making = out.with_name(f"{out.name}.part")
    shutil.rmtree(making, ignore_errors=True)
    making.parent.mkdir(parents=True, exist_ok=True)
    took = _write(base, making, chunks, texts, seed)
    (making / MADE).write_text(json.dumps(took, indent=1))
    making.rename(out)
    return took


def _write(base: Home, out: Path, chunks: int, texts: Sequence[str], seed: int) -> dict[str, float]:
    real, manifest, whole = read(base, texts)
    home = Home(out).create()
    chunk_table = tables.chunks_table(manifest.model.fingerprint)
    schemas = {**tables.SCHEMAS, chunk_table: tables.chunks_schema(manifest.model.dimensions)}
    lance, writer = LanceTables(home), sparse.SparseWriter(home.tantivy)
    began = time.monotonic()
    last = max(row["rid"] for row in real.records)
    blocks = varied(real, chunks - whole[chunk_table].num_rows, last + 1, seed)
    for block in itertools.chain([originals(real, whole, chunk_table)], blocks):
        _put(lance, writer, block, schemas, chunk_table)
    writer.commit()
    writer.close()
    took = {"write_s": time.monotonic() - began}
    pinned = {}
    for name, wanted in lookups(manifest.model.fingerprint).items():
        before = time.monotonic()
        pinned[name] = lance.settle(name, wanted)
        lance.table(name).tags.create("release-00000001", pinned[name])
        took[f"settle_{name.partition('_')[0]}_s"] = time.monotonic() - before
    made = msgspec.structs.replace(
        manifest,
        number=1,
        tables=pinned,
        marts=[],
        counts={name.partition("_")[0]: lance.table(name).count_rows() for name in pinned},
    )
    folder = releases.folder_of(home, 1)
    folder.mkdir(parents=True)
    home.tantivy.rename(folder / "tantivy")
    (folder / releases.LEASE).touch()
    (folder / releases.MANIFEST).write_bytes(msgspec.json.encode(made))
    home.models.symlink_to(base.models.resolve())
    return took


def _put(
    lance: LanceTables, writer: sparse.SparseWriter, block: Block, schemas: dict[str, pa.Schema], chunk_table: str
) -> None:
    for name, schema in schemas.items():
        if name == chunk_table:
            rows = pa.Table.from_pylist(block.rows["chunks"], schema=schema.remove(schema.get_field_index("vector")))
            flat = pa.array(np.concatenate(block.vectors).astype(np.float32))
            size = len(block.vectors[0])
            made = rows.append_column(schema.field("vector"), pa.FixedSizeListArray.from_arrays(flat, size))
        else:
            made = pa.Table.from_pylist(block.rows[name], schema=schema)
        lance.replace(name, schema, "rid", [], made.to_batches())
    writer.replace([], block.documents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path, help="a synced home, for example demo/home")
    parser.add_argument("out", type=Path, help="folder of the new home; must not exist")
    parser.add_argument("--chunks", type=int, default=200_000)
    parser.add_argument("--texts", type=Path, help="more real texts to vary, a JSON string a line")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    texts = [json.loads(line) for line in given.texts.read_text().splitlines()] if given.texts else []
    try:
        took = write(Home(given.base), given.out, given.chunks, texts, given.seed)
    except FileExistsError as error:
        parser.error(str(error))
    print(json.dumps(took, indent=1))


if __name__ == "__main__":
    main()
