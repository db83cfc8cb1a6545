"""BM25 over chunks in Tantivy: a stemmed text field, and identifiers kept whole.

Fields: `chunk` (id, stored), `rid`, `source`, `feed`, `access` (one term a label), `created` (seconds since 1970, for
ranges), `text` (English stems; identifiers fall into their parts here), `mentions` (identifiers in the chunk, whole,
in the normal form of `knowledge.identifiers`) and `names` (identifiers that *are* the record: its key, its id, its PV).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import tantivy

WRITER_HEAP_BYTES = 128_000_000
_WORD = "english"


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
    return builder.build()


def open_index(folder: Path) -> tantivy.Index:
    """An index opened for reading or writing, its analyzers registered."""
    index = tantivy.Index.open(str(folder))
    _register(index)
    return index


def create_index(folder: Path) -> tantivy.Index:
    folder.mkdir(parents=True, exist_ok=True)
    index = tantivy.Index(schema(), path=str(folder))
    _register(index)
    return index


def exists(folder: Path) -> bool:
    return (folder / "meta.json").is_file()


class SparseWriter:
    """The one writer of an index. Everything between opening and `commit` becomes visible at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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

    def close(self) -> None:
        self._writer.wait_merging_threads()

    def count(self) -> int:
        self.index.reload()
        return int(self.index.searcher().num_docs)


def clear(folder: Path) -> None:
    """Drop an index with its files, so that nothing deleted lingers in an old segment."""
    shutil.rmtree(folder, ignore_errors=True)


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
    return made


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
