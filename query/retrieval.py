"""The channels: what is close in meaning, what shares words, and what holds the very identifier that was asked for.

Every channel filters by label, source and time inside its own search, so that its hundred hits are the reader's own,
and caps each kind of source, so that thousands of near-identical records of one kind cannot flood it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.knowledge import identifiers
from aps_rag_pipeline.stores import sparse
from query.filters import Filters
from query.found import Found, key_of
from query.places import Place

if TYPE_CHECKING:
    import tantivy

#: Hits of a channel.
DEPTH = 100
#: At most so many of them of one kind of source, unless no other kind has any.
SOURCE_CAP = 40
#: So many nearest are asked for at once, so that those of kinds with too many can be left out.
AHEAD = 400
#: Chunks of one record among the hits of the exact channel that are there because of the record's name.
OWN_CHUNKS = 3
#: A hit for each identifier counts more than any sum of word scores.
_IDENTIFIER_SCORE = 1_000.0
#: A phrase counts so much more than its words, and may have so many words more in between.
_PHRASE, _PHRASE_SLOP = 2.0, 2
#: So many chunks about a place or an identifier are compared with a question.
FOCUS_DEPTH = 400
_EXACT_FIRST_SOURCES = ("epics",)


Fetch = Callable[[Filters, int], list[Found]]


def capped(
    fetch: Fetch, filters: Filters, depth: int = DEPTH, cap: int = SOURCE_CAP, ahead: list[Found] | None = None
) -> list[Found]:
    """The best `depth` hits with at most `cap` of a kind of source, refilled from the other kinds.

    Where the other kinds have too few, the places stay with the kinds that have more.

    Args:
        ahead: what `fetch` gives for `AHEAD` hits, where looking so far ahead costs less than asking again without the
            kinds that have too many.
    """
    first = fetch(filters, depth) if ahead is None else ahead
    complete = len(first) < (depth if ahead is None else AHEAD)
    found = {hit.chunk_id: hit for hit in first[:depth]}
    full: tuple[str, ...] = ()
    while len(filters.sources) != 1:
        counts = Counter(hit.source for hit in found.values())
        crowded = tuple(source for source, count in counts.items() if count > cap and source not in full)
        if not crowded:
            break
        full += crowded
        if (wanted := depth - cap * len(full)) <= 0:
            continue
        more = [hit for hit in first if hit.source not in full][:wanted]
        if len(more) < wanted and not complete:
            more = fetch(replace(filters, without=filters.without + full), wanted)
        found |= {hit.chunk_id: hit for hit in more}
    taken: Counter[str] = Counter()
    kept: list[Found] = []
    spare: list[Found] = []
    for hit in sorted(found.values(), key=lambda hit: -hit.score):
        taken[hit.source] += 1
        (spare if full and taken[hit.source] > cap else kept).append(hit)
    kept = kept[:depth]
    return kept + spare[: depth - len(kept)]


class SparseIndex:
    """BM25 and exact look-ups over the released index."""

    def __init__(self, folder: Path) -> None:
        self._copy: str | None = None
        self._index = self._open(folder)
        self._searcher = self._index.searcher()
        self._schema = self._index.schema

    def close(self) -> None:
        if self._copy is not None:
            shutil.rmtree(self._copy, ignore_errors=True)
            self._copy = None

    def words(
        self, text: str, filters: Filters, limit: int, within: tantivy.Query | None = None, phrase: str = ""
    ) -> list[Found]:
        """Chunks that share words with a text, more so where they hold `phrase` nearly as it stands; `within` narrows
        to the chunks that another query holds."""
        from tantivy import Occur, Query

        query = self._words(text)
        if query is None:
            return []
        if " " in (together := _plain(phrase)):
            near = self._index.parse_query(f'"{together}"~{_PHRASE_SLOP}', ["text"])
            query = Query.boolean_query([(Occur.Should, query), (Occur.Should, Query.boost_query(near, _PHRASE))])
        if within is not None:
            query = Query.boolean_query([(Occur.Must, query), (Occur.Must, Query.const_score_query(within, 0.0))])
        return self._search(query, filters, limit)

    def members(self, query: tantivy.Query, filters: Filters, limit: int) -> list[Found]:
        """Chunks that a query holds, whatever their scores."""
        return self._search(query, filters, limit)

    def focus(self, identifiers: Sequence[str], place: Place | None) -> tantivy.Query | None:
        """Chunks that hold one of the identifiers, or else that are about a place; None where there is neither."""
        from tantivy import Occur, Query

        if identifiers:
            parts = [Query.term_set_query(self._schema, name, list(identifiers)) for name in ("names", "mentions")]
        elif place is not None:
            parts = [self._index.parse_query(f'"{_plain(place.name)}"', ["text"])]
            if place.pattern is not None:
                parts.append(Query.regex_query(self._schema, "mentions", place.pattern))
        else:
            return None
        return Query.boolean_query([(Occur.Should, part) for part in parts])

    def exact(self, field_name: str, tokens: Sequence[str], text: str, filters: Filters, limit: int) -> list[Found]:
        """Chunks with any of the identifiers in a field (`names` or `mentions`): those with most of them first, and
        among equals those that share most words with `text`."""
        from tantivy import Occur, Query

        if not tokens:
            return []
        terms = [Query.term_query(self._schema, field_name, token) for token in tokens]
        any_of = [(Occur.Should, Query.const_score_query(term, _IDENTIFIER_SCORE)) for term in terms]
        query = Query.boolean_query(any_of)
        words = self._words(text)
        if words is not None:
            query = Query.boolean_query([(Occur.Must, query), (Occur.Should, words)])
        return self._search(query, filters, limit)

    def holds(self, field_name: str, term: str, filters: Filters) -> bool:
        """Whether a chunk that the reader may see has this term."""
        from tantivy import Query

        return bool(self._search(Query.term_query(self._schema, field_name, term), filters, 1))

    def phrase(self, text: str, filters: Filters, limit: int) -> list[Found]:
        """Chunks with these words in this order, whatever signs or blanks stand between them."""
        words = _plain(text)
        return self._search(self._index.parse_query(f'"{words}"', ["text"]), filters, limit) if words else []

    def frequency(self, stem: str, visible: Filters) -> int:
        """Number of chunks that the reader may see with a stem: hidden ones must not weigh in what is answered."""
        from tantivy import Occur, Query

        if visible.groups is None:
            return int(self._searcher.doc_freq("text", stem))
        query = Query.boolean_query(
            [(Occur.Must, Query.term_query(self._schema, "text", stem)), *visible.clauses(self._schema)]
        )
        found: Any = self._searcher.search(query, 1, count=True)
        return int(found.count)

    def mentions(self, identifier: str) -> int:
        """Number of chunks that hold an identifier (normal form)."""
        return int(self._searcher.doc_freq("mentions", identifier))

    @property
    def size(self) -> int:
        return int(self._searcher.num_docs)

    def _open(self, folder: Path) -> tantivy.Index:
        try:
            return sparse.open_index(folder)
        except ValueError:
            # On a read-only mount, or in another user's folder, Tantivy cannot make its lock files: read a copy.
            if os.access(folder, os.W_OK):
                raise
            self._copy = tempfile.mkdtemp(prefix="aps-rag-bm25-")
            shutil.copytree(folder, self._copy, dirs_exist_ok=True, copy_function=shutil.copyfile)
            os.chmod(self._copy, 0o700)
            return sparse.open_index(Path(self._copy))

    def _words(self, text: str) -> tantivy.Query | None:
        words = _plain(text)
        return self._index.parse_query(words, ["text"]) if words else None

    def _search(self, query: tantivy.Query, filters: Filters, limit: int) -> list[Found]:
        from tantivy import Occur, Query

        clauses = filters.clauses(self._schema)
        if clauses:
            query = Query.boolean_query([(Occur.Must, query), *clauses])
        found = []
        for score, address in self._searcher.search(query, limit, count=False).hits:
            document = self._searcher.doc(address)
            found.append(Found(str(document.get_first("chunk")), str(document.get_first("source")), float(score)))
        return found


class IndexLexicon:
    """What the reader's part of the index knows (see `understanding.Lexicon`)."""

    def __init__(self, index: SparseIndex, filters: Filters) -> None:
        self._index = index
        self._filters = filters
        self._held = lru_cache(maxsize=4096)(self._look)

    def names(self, token: str) -> bool:
        return self._held("names", token)

    def mentions(self, token: str) -> bool:
        return self._held("mentions", token)

    def word(self, word: str) -> bool:
        return bool(self._index.words(word, self._filters, 1))

    def spelled(self, text: str) -> str | None:
        wanted = _squashed(text)
        if len(wanted) < 4:
            return None
        filters = replace(self._filters, sources=_EXACT_FIRST_SOURCES)
        for hit in self._index.phrase(text, filters, 20):
            name = key_of(hit.passage_id).partition(":")[2]
            for form in (name, name.partition("/")[2]):
                if _squashed(form) == wanted and self.names(identifiers.normal(form)):
                    return identifiers.normal(form)
        return None

    def _look(self, field_name: str, token: str) -> bool:
        return self._index.holds(field_name, token, self._filters)


@dataclass(frozen=True)
class Channels:
    """Passages as each channel ranked them, best first, and how close in meaning the best chunk of each is."""

    ranked: dict[str, list[str]] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)  # passages of records that are called as was asked
    similarity: dict[str, float] = field(default_factory=dict)
    chunk: dict[str, str] = field(default_factory=dict)  # the best chunk of a passage

    def __bool__(self) -> bool:
        return any(self.ranked.values())

    def joined(self, narrow: Channels, name: str) -> Channels:
        """These channels with one more: what was found by words or meaning in a narrower search."""
        lists = [narrow.ranked[channel] for channel in ("sparse", "dense") if channel in narrow.ranked]
        mixed = [item for rank in zip_longest(*lists) for item in rank if item is not None]
        return Channels(
            ranked={**self.ranked, name: list(dict.fromkeys(mixed))[:DEPTH]},
            own=self.own,
            similarity=narrow.similarity | self.similarity,
            chunk=narrow.chunk | self.chunk,
        )


def collect(channels: dict[str, list[Found]], own: Sequence[Found]) -> Channels:
    """Channels of chunks as channels of passages: a passage stands where its best chunk stood."""
    ranked = {name: list(dict.fromkeys(hit.passage_id for hit in hits)) for name, hits in channels.items()}
    similarity: dict[str, float] = {}
    chunk: dict[str, str] = {}
    for hit in channels.get("dense", []):
        similarity[hit.passage_id] = max(hit.score, similarity.get(hit.passage_id, hit.score))
    for hits in channels.values():
        for hit in hits:
            chunk.setdefault(hit.passage_id, hit.chunk_id)
    return Channels(ranked, list(dict.fromkeys(hit.passage_id for hit in own)), similarity, chunk)


def exact_channel(index: SparseIndex, tokens: Sequence[str], text: str, filters: Filters) -> tuple[list[Found], int]:
    """Hits for identifiers: first of the records that are called so, then of those that mention them.

    Gives the hits and how many of them are of the first sort.
    """
    per_record: Counter[str] = Counter()
    own: list[Found] = []
    for hit in index.exact("names", tokens, text, filters, DEPTH):
        per_record[key_of(hit.passage_id)] += 1
        if per_record[key_of(hit.passage_id)] <= OWN_CHUNKS:
            own.append(hit)
    seen = {hit.chunk_id for hit in own}
    mentions = capped(lambda f, n: index.exact("mentions", tokens, text, f, n), filters)
    return own + [hit for hit in mentions if hit.chunk_id not in seen], len(own)


def _plain(text: str) -> str:
    """Words alone, in lower case, so that nothing in a question is taken as query syntax."""
    return " ".join(re.findall(r"[^\W_]+", text.lower()))


def _squashed(text: str) -> str:
    return "".join(re.findall(r"[^\W_]+", text.lower()))
