"""BM25 over chunks in Tantivy: a stemmed text field, and identifiers kept whole.

Fields: `chunk` (id, stored), `rid`, `source`, `feed`, `access` (one term a label), `created` (seconds since 1970, for
ranges), `text` (English stems; identifiers fall into their parts here), `mentions` (identifiers in the chunk, whole,
in the normal form of `knowledge.identifiers`) and `names` (identifiers that *are* the record: its key, its id, its PV).
`seal` (stored alone) is a digest of what the document was made from: an index cannot be read back, a seal can.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import tantivy

from aps_rag_pipeline.failpoints import passing
from aps_rag_pipeline.stores.durable import write_through

WRITER_HEAP_BYTES = 128_000_000
#: An index is written anew when more than one document in so many has been deleted: segments keep what was deleted.
_DELETED_ONE_IN = 8
_WORD = "english"
_META = "meta.json"
#: Files that every segment has.
_SEGMENT_KINDS = ("term", "idx", "pos", "fast", "fieldnorm", "store")
SEAL_BYTES = 12
_MENTIONS_BYTES = 6


@dataclass(frozen=True)
class SparseDocument:
    chunk_id: str
    rid: int
    source: str
    feed: str
    access: Sequence[str]
    created_at: datetime | None
    text: str
    mentions: Sequence[str]
    names: Sequence[str]

    @property
    def seal(self) -> bytes:
        """Digest of the document: `SEAL_BYTES` of everything but the mentions, then `_MENTIONS_BYTES` of these, which
        follow from the text and cost more to find than all the rest."""
        return seal_without_mentions(self) + _digest(list(self.mentions), _MENTIONS_BYTES)


def seal_without_mentions(document: SparseDocument) -> bytes:
    """The beginning of a document's seal."""
    created = document.created_at
    return _digest(
        (
            document.chunk_id, document.rid, document.source, document.feed, list(document.access),
            None if created is None else int(created.timestamp()), document.text, list(document.names),
        ),
        SEAL_BYTES,
    )  # fmt: skip


def schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("chunk", stored=True, tokenizer_name="raw", index_option="basic")
    # Signed: a Python int becomes a signed term, and deleting one from an unsigned field deletes nothing, silently.
    builder.add_integer_field("rid", stored=True, indexed=True, fast=True)
    builder.add_text_field("source", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("feed", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("access", tokenizer_name="raw", index_option="basic")
    builder.add_integer_field("created", stored=False, indexed=True, fast=True)
    builder.add_text_field("text", tokenizer_name=_WORD)
    builder.add_text_field("mentions", tokenizer_name="raw", index_option="freq")
    builder.add_text_field("names", tokenizer_name="raw", index_option="freq")
    builder.add_bytes_field("seal", stored=True)
    return builder.build()


def open_index(folder: Path) -> tantivy.Index:
    """An index opened for reading or writing, its analyzers registered."""
    index = tantivy.Index.open(str(folder))
    _register(index)
    return index


def create_index(folder: Path) -> tantivy.Index:
    clear(folder)  # of what a run that died on the way here has left
    folder.mkdir(parents=True, exist_ok=True)
    write_through(folder.parent)
    passing("bm25.create.before")
    index = tantivy.Index(schema(), path=str(folder))
    passing("bm25.create.after")
    _register(index)
    return index


def exists(folder: Path) -> bool:
    return (folder / _META).is_file()


def sealed(folder: Path) -> bool:
    """Whether the documents of an index bear seals: those of earlier versions did not."""
    return any(field["name"] == "seal" for field in _meta(folder)["schema"])


@dataclass(frozen=True)
class StoredDocument:
    """What can be read back of a document; without a seal where it was written by an earlier version."""

    chunk_id: str
    rid: int
    seal: bytes


def stored_documents(index: tantivy.Index, after: int | None, upto: int | None) -> list[StoredDocument]:
    """The documents of records above `after` and up to `upto`; None leaves a side open."""
    if after is None and upto is None:
        query = tantivy.Query.all_query()
    else:
        integer = tantivy.FieldType.Integer
        query = tantivy.Query.range_query(index.schema, "rid", integer, after, upto, include_lower=after is None)
    return _stored(index, query)


def documents_of(index: tantivy.Index, rids: Sequence[int]) -> list[StoredDocument]:
    """The documents of these records."""
    return _stored(index, tantivy.Query.term_set_query(index.schema, "rid", list(rids)))


def _stored(index: tantivy.Index, query: tantivy.Query) -> list[StoredDocument]:
    searcher = index.searcher()
    found = []
    for _, address in searcher.search(query, limit=max(searcher.num_docs, 1), count=False).hits:
        document = searcher.doc(address)
        found.append(StoredDocument(document["chunk"][0], document["rid"][0], (document["seal"] or [b""])[0]))
    return found


class SparseWriter:
    """The one writer of an index. Everything between opening and `commit` becomes visible at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if exists(folder) and not sealed(folder):
            clear(folder)  # the version of the stage moved with the fields, so every document is added anew
        self.index = open_index(folder) if exists(folder) else create_index(folder)
        self._writer = self.index.writer(heap_size=WRITER_HEAP_BYTES, num_threads=1)

    def replace(self, rids: Iterable[int], documents: Iterable[SparseDocument]) -> int:
        """Delete what the index holds of these records and add the documents; gives how many were added."""
        for rid in rids:
            self._writer.delete_documents_by_term("rid", rid)
        added = 0
        for document in documents:
            self._writer.add_document(_document(document))
            added += 1
        return added

    def commit(self) -> None:
        self._writer.commit()
        write_through(self.folder)  # Tantivy waits for the disk with its files, not with the renaming of their list

    def close(self) -> None:
        self._writer.wait_merging_threads()

    def count(self) -> int:
        self.index.reload()
        return int(self.index.searcher().num_docs)


def clear(folder: Path) -> None:
    """Drop an index with its files, so that nothing deleted lingers in an old segment."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (folder / _META).unlink()  # first: without it there is no index, but some of one is an error
    shutil.rmtree(folder, ignore_errors=True)


def mostly_deleted(folder: Path) -> bool:
    """Whether an index would shrink by being written anew."""
    segments = _meta(folder)["segments"]
    written = sum(segment["max_doc"] for segment in segments)
    deleted = sum((segment["deletes"] or {}).get("num_deleted_docs", 0) for segment in segments)
    return bool(deleted * _DELETED_ONE_IN > written)


def named_files(folder: Path) -> list[Path]:
    """The files that the last commit of an index consists of, whether or not they are there.

    Raises:
        OSError, ValueError, LookupError: the list of them cannot be read.
    """
    found = []
    for segment in _meta(folder)["segments"]:
        stem, deletes = segment["segment_id"].replace("-", ""), segment["deletes"]
        found += [folder / f"{stem}.{kind}" for kind in _SEGMENT_KINDS]
        if deletes is not None:
            found.append(folder / f"{stem}.{deletes['opstamp']}.del")
    return found


def committed_files(folder: Path) -> list[Path]:
    """The files of an index's last commit, without those that a merge or a run that died has left."""
    segments = {segment["segment_id"].replace("-", ""): segment["deletes"] for segment in _meta(folder)["segments"]}
    found = []
    for path in sorted(folder.iterdir()):
        stem, *rest = path.name.split(".")
        if stem in segments and (rest[-1:] != ["del"] or _is_deletion_of(path, segments[stem])):
            found.append(path)
    return [*found, folder / _META, folder / ".managed.json"]


def _is_deletion_of(path: Path, deletes: dict[str, int] | None) -> bool:
    return deletes is not None and path.name.split(".")[1] == str(deletes["opstamp"])


def _meta(folder: Path) -> Any:
    return json.loads((folder / _META).read_bytes())


def _document(document: SparseDocument) -> tantivy.Document:
    made = tantivy.Document()
    made.add_text("chunk", document.chunk_id)
    made.add_integer("rid", document.rid)
    made.add_text("source", document.source)
    made.add_text("feed", document.feed)
    for label in document.access:
        made.add_text("access", label)
    if document.created_at is not None:
        made.add_integer("created", int(document.created_at.timestamp()))
    made.add_text("text", document.text)
    for token in document.mentions:
        made.add_text("mentions", token)
    for token in document.names:
        made.add_text("names", token)
    made.add_bytes("seal", document.seal)
    return made


def _digest(said: object, size: int) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(said), digest_size=size).digest()


def _register(index: tantivy.Index) -> None:
    analyzer = (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.remove_long(60))
        .filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.ascii_fold())
        .filter(tantivy.Filter.stemmer("english"))
        .build()
    )
    index.register_tokenizer(_WORD, analyzer)
