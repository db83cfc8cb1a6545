"""Text of sources cannot act on a terminal, and JSON stays stable."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from query import present
from query.results import (
    Answer,
    CorpusStatus,
    Evidence,
    FeedStatus,
    Hit,
    LinkView,
    PassageView,
    RecordView,
    Searched,
    SearchResult,
    Sentence,
    Understanding,
)

EVIL = "[red]red[/red] [link=http://x]x[/link] \x1b[2J\x1b]0;owned\x07 \x9b31m \u202egnp.exe :bomb: [/]"
NOW = datetime(2025, 3, 14, 3, 30, tzinfo=UTC)
HIT = Hit("BELY:1", EVIL, "bely", "log", NOW, "https://log/1", "BELY:1#0", "page 1", EVIL, 0.5, {"dense": 1})
ANSWER = Answer(
    question="q",
    answered=True,
    text=f"{EVIL} [BELY:1]",
    sentences=[Sentence(EVIL, ["BELY:1"])],
    evidence=[Evidence("BELY:1", "https://log/1", EVIL, "BELY:1#0", EVIL, EVIL, "bely", NOW)],
    nearest=[],
    searched=Searched(3, ("bely",)),
    reason="",
    understanding=Understanding(EVIL),
    release=4,
    model="m",
)
RECORD = RecordView(
    "BELY:1", "bely", "log", "1", EVIL, NOW, None, EVIL, "", ["public"], {EVIL: EVIL, "n": [1, 2]},
    [LinkView("url", EVIL, EVIL)], [PassageView("BELY:1#0", "prose", EVIL, EVIL, EVIL)],
)  # fmt: skip
STATUS = CorpusStatus("Ring", 4, 9, NOW, "m", 1, 2, 3, [FeedStatus("bely", EVIL, 1, NOW)])


def shown(renderable: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out, width=200, force_terminal=False, color_system=None).print(renderable)
    return out.getvalue()


@pytest.mark.parametrize(
    "renderable",
    [
        present.render_search(SearchResult([HIT], Understanding(EVIL), 4, "m", "hybrid")),
        present.render_answer(ANSWER),
        present.render_record(RECORD),
        present.render_status(STATUS),
    ],
    ids=["search", "answer", "record", "status"],
)
def test_source_text_is_inert(renderable: RenderableType) -> None:
    text = shown(renderable)
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    flat = "".join(text.split())
    assert "[red]red[/red]" in flat
    assert ":bomb:" in flat
    assert "\\x1b[2J" in flat
    assert "\\u202e" in flat


@given(st.text(max_size=60))
def test_json_says_the_same_and_holds_no_unsafe_character(text: str) -> None:
    made = present.to_json(Sentence(text, ["BELY:1"]))
    assert json.loads(made) == {"text": text, "keys": ["BELY:1"]}
    assert present.safe(made) == made


def test_json_keeps_declared_order_and_times_are_iso() -> None:
    made = json.loads(present.to_json([HIT]))[0]
    assert list(made) == [
        "key", "title", "source", "feed", "created_at", "url", "passage_id", "locator", "snippet", "score", "channels",
    ]  # fmt: skip
    assert made["created_at"] == "2025-03-14T03:30:00Z"


def test_keys_are_never_cut_and_dates_are_of_the_zone() -> None:
    key = "CODE:" + "long/path/" * 12 + "x.tcl"
    out = io.StringIO()
    hit = Hit(key, "t", "code", "code", NOW, "", f"{key}#0", "", "s", 0.1, {})
    Console(file=out, width=60).print(
        present.render_search(SearchResult([hit], Understanding("q"), 1, "m", "hybrid"), ZoneInfo("America/Chicago"))
    )
    text = out.getvalue()
    assert "…" not in text
    assert "2025-03-13" in "".join(text.split())


def test_no_answer_shows_the_nearest_records_and_where_was_looked() -> None:
    declined = Answer(
        "q", False, "Not found: no luck.", [], [], [HIT], Searched(3, ("bely",)), "no luck", Understanding("q"), 4, "m"
    )
    text = shown(present.render_answer(declined))
    assert "Not found: no luck." in text
    assert "BELY:1" in text
    assert "Searched 3 records (bely), release 4." in text
