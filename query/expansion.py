"""Chunks to passages: what a reader gets whole, each text once, within a budget of words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from query.filters import Filters
from query.found import key_of, source_of
from query.results import Evidence

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from query.held import Shelved

#: Words of all evidence of an answer together; about what a small language model reads beside a question.
BUDGET_WORDS = 1_800
#: Evidence is never more than so many passages, however short they are.
MOST_PASSAGES = 12
#: A passage longer than this is given up to here.
LONGEST_PASSAGE_WORDS = 900
#: What a name tells (record, ordinal, kind of source) is not read: each column more takes its time.
_PASSAGE_COLUMNS = ["passage_id", "access", "kind", "title", "locator", "text"]
_RECORD_COLUMNS = ["key", "feed", "access", "title", "created_at", "url"]


@dataclass(frozen=True)
class RecordHead:
    key: str
    source: str
    feed: str
    title: str
    created_at: datetime | None
    url: str


@dataclass(frozen=True)
class Passage:
    """A released passage with what its record says of itself. `also`: keys of records with word for word this text."""

    passage_id: str
    ordinal: int
    kind: str
    title: str
    locator: str
    text: str
    record: RecordHead
    also: tuple[str, ...] = field(default=())

    @property
    def key(self) -> str:
        return self.record.key

    def evidence(self) -> Evidence:
        return Evidence(
            key=self.key,
            url=self.record.url,
            title=self.record.title or self.title,
            passage_id=self.passage_id,
            locator=self.locator,
            text=self.text,
            source=self.record.source,
            created_at=self.record.created_at,
            also=list(self.also),
        )


class Shelf:
    """Passages and records of a release by id, for one reader. What was read once is kept."""

    def __init__(self, passages: Shelved, records: Shelved, filters: Filters, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._passages = passages
        self._records = records
        self._filters = filters
        self._read: dict[str, Passage | None] = {}

    def heads(self, keys: Iterable[str]) -> dict[str, RecordHead]:
        wanted = list(dict.fromkeys(keys))
        rows = self._records.read(wanted, _RECORD_COLUMNS)
        return {row["key"]: _head(row) for row in rows if self._filters.admits(row["access"])}

    def passages(self, passage_ids: Iterable[str]) -> dict[str, Passage]:
        """The passages of these ids that the reader may see, in the order asked for."""
        wanted = list(dict.fromkeys(passage_ids))
        if missing := [passage_id for passage_id in wanted if passage_id not in self._read]:
            self._read |= dict.fromkeys(missing) | self._fetch(missing)
        return {passage_id: passage for passage_id in wanted if (passage := self._read[passage_id]) is not None}

    def _fetch(self, wanted: list[str]) -> dict[str, Passage]:
        heads = self._pool.submit(self.heads, [key_of(passage_id) for passage_id in wanted])
        rows = self._passages.read(wanted, _PASSAGE_COLUMNS)
        seen = [row for row in rows if self._filters.admits(row["access"])]
        found = heads.result()
        return {
            row["passage_id"]: _passage(row, found[key]) for row in seen if (key := key_of(row["passage_id"])) in found
        }


def expand(
    order: Sequence[str], shelf: Shelf, budget_words: int = BUDGET_WORDS, most: int = MOST_PASSAGES
) -> list[Passage]:
    """The best passages that fit the budget, in order; then, if there is room, the neighbours of the first.

    Passages with the same title and words are one, which names the other records. The first passage is always there.
    """
    found = shelf.passages(order[: 2 * most])
    kept: dict[str, Passage] = {}
    used = 0
    for passage in found.values():
        # Two process variables may be described alike; only what is also called the same is the same.
        words = " ".join(f"{passage.record.title}\n{passage.text}".split())
        if words in kept:
            kept[words] = _also(kept[words], passage.key)
            continue
        passage = _shortened(passage)
        size = len(passage.text.split())
        if len(kept) >= most or (kept and used + size > budget_words):
            continue
        kept[words] = passage
        used += size
    chosen = list(kept.values())
    return chosen + _neighbours(chosen, shelf, budget_words - used, most - len(chosen))


def _neighbours(chosen: Sequence[Passage], shelf: Shelf, room: int, most: int) -> list[Passage]:
    if not chosen or room <= 0 or most <= 0:
        return []
    first = chosen[0]
    beside = [f"{first.key}#{ordinal}" for ordinal in (first.ordinal + 1, first.ordinal - 1) if ordinal >= 0]
    there = {passage.passage_id for passage in chosen}
    found: list[Passage] = []
    for passage in shelf.passages(identity for identity in beside if identity not in there).values():
        size = len(passage.text.split())
        if size <= room and len(found) < most:
            found.append(passage)
            room -= size
    return found


def _also(passage: Passage, key: str) -> Passage:
    if key == passage.key or key in passage.also:
        return passage
    return replace(passage, also=(*passage.also, key))


def _shortened(passage: Passage) -> Passage:
    words = passage.text.split()
    if len(words) <= LONGEST_PASSAGE_WORDS:
        return passage
    # Cut at a line end, so that a table row or a sentence on a line of its own stays whole.
    length, used = 0, 0
    for line in passage.text.splitlines(keepends=True):
        used += len(line.split())
        if used > LONGEST_PASSAGE_WORDS:
            break
        length += len(line)
    text = passage.text[:length] if length else " ".join(words[:LONGEST_PASSAGE_WORDS])
    return replace(passage, text=text.rstrip() + "\n…")


def _head(row: dict[str, Any]) -> RecordHead:
    key = row["key"]
    return RecordHead(key, source_of(key), row["feed"], row["title"] or "", row["created_at"], row["url"] or "")


def _passage(row: dict[str, Any], head: RecordHead) -> Passage:
    return Passage(
        passage_id=row["passage_id"],
        ordinal=int(row["passage_id"].rpartition("#")[2]),
        kind=row["kind"] or "prose",
        title=row["title"] or "",
        locator=row["locator"] or "",
        text=row["text"] or "",
        record=head,
    )
