"""What a corpus gives back: plain typed values, each of which turns into JSON-ready built-ins by `to_dict`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

Intent = Literal["identifier", "fact", "statistics", "troubleshooting", "multi_hop", "concept", "time"]
Mode = Literal["hybrid", "dense", "sparse"]
MODES: tuple[Mode, ...] = ("hybrid", "dense", "sparse")


class Result(msgspec.Struct, frozen=True):
    def to_dict(self) -> dict[str, Any]:
        """Built-ins that any JSON encoder takes; times are ISO 8601 strings."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


class Window(Result, frozen=True):
    """A stretch of time, from `start` up to but without `end` (aware UTC; None: open). `phrase` is what stated it."""

    start: datetime | None = None
    end: datetime | None = None
    phrase: str = ""


class Understanding(Result, frozen=True):
    """What a question was taken to ask. Only what the reader's groups may see has influenced it."""

    text: str
    intent: Intent = "fact"
    identifiers: list[str] = []  # normal forms that the corpus knows
    unknown: list[str] = []  # identifiers asked for that stand in no record the reader may see
    words: list[str] = []  # content words, as typed
    sources: list[str] = []  # kinds of record the wording points at; a preference, not a filter
    window: Window | None = None  # time phrase in the question
    window_applied: bool = False  # whether that phrase limited what was searched
    told_later: bool = False  # whether records from after that time may tell of it: reports, late entries


class Hit(Result, frozen=True):
    """A record that was found, with the passage that fits best. `channels` gives its rank in each channel, from 1."""

    key: str
    title: str
    source: str
    feed: str
    created_at: datetime | None
    url: str
    passage_id: str
    locator: str
    snippet: str
    score: float
    channels: dict[str, int]


class SearchResult(Result, frozen=True):
    hits: list[Hit]
    understanding: Understanding
    release: int
    model: str
    mode: Mode


class Evidence(Result, frozen=True):
    """A passage that an answer may rest on. `also` names the records that hold word for word the same text."""

    key: str
    url: str
    title: str
    passage_id: str
    locator: str
    text: str
    source: str = ""
    created_at: datetime | None = None
    also: list[str] = []


class Sentence(Result, frozen=True):
    """A statement of an answer with the citation keys of the passages it stands in."""

    text: str
    keys: list[str]


class Searched(Result, frozen=True):
    """Where an answer was looked for. One value serves all answers to the same reader, and so cannot be changed."""

    records: int
    sources: tuple[str, ...]
    since: datetime | None = None
    until: datetime | None = None


class Answer(Result, frozen=True):
    """`text` is the answer with inline `[KEY]` citations, or says that there is none; `reason` says why."""

    question: str
    answered: bool
    text: str
    sentences: list[Sentence]
    evidence: list[Evidence]
    nearest: list[Hit]
    searched: Searched
    reason: str
    understanding: Understanding
    release: int
    model: str


class PassageView(Result, frozen=True):
    passage_id: str
    kind: str
    title: str
    locator: str
    text: str


class LinkView(Result, frozen=True):
    kind: str
    target: str
    text: str = ""


class RecordView(Result, frozen=True):
    """A record as released: its passages in reading order, its own values, and the references it states."""

    key: str
    source: str
    feed: str
    id: str
    title: str
    created_at: datetime | None
    modified_at: datetime | None
    author: str
    url: str
    access: list[str]
    fields: dict[str, Any]
    links: list[LinkView]
    passages: list[PassageView]


class Freshness(Result, frozen=True):
    """Seconds from a feed's last changes to the release that served them first, published `at`; `first_sight` of the
    `changed` versions are measured from when they were first seen, the others from their modified time."""

    at: datetime
    changed: int
    first_sight: int
    median_s: float
    p95_s: float
    worst_s: float


class FeedStatus(Result, frozen=True):
    """A feed as far as the reader sees it; `freshness` only where that is all of it, since it tells of every change."""

    source: str
    feed: str
    records: int
    newest_at: datetime | None = None
    freshness: Freshness | None = None


class CorpusStatus(Result, frozen=True):
    """What the reader's groups may see of the open release."""

    facility: str
    release: int
    changeset: int
    published_at: datetime
    model: str
    records: int
    passages: int
    chunks: int
    feeds: list[FeedStatus]
