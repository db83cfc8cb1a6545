"""Bytes to text: whatever the encoding, nothing is dropped and nothing turns into another alphabet."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aps_rag_pipeline.content.text import clean, decode, is_binary

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]))


@given(TEXT)
def test_utf8_and_marked_text_come_back(text: str) -> None:
    text = text.removeprefix("\ufeff")
    for data in (
        text.encode(),
        codecs.BOM_UTF8 + text.encode(),
        codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    ):
        assert decode(data) == clean(text)


@given(st.binary(max_size=2000))
def test_any_bytes_give_valid_text(data: bytes) -> None:
    text = decode(data)
    assert text.encode("utf-8").decode("utf-8") == text
    assert "\r" not in text
    assert "\x00" not in text


def test_old_encodings() -> None:
    assert decode("Die Größe der Düse".encode("cp1252")) == "Die Größe der Düse"
    assert decode("größe".encode("cp1252")) == "größe"
    russian = "Клистрон отключился из-за отражённой мощности, вакуум в порядке. " * 10
    assert decode(russian.encode("cp1251")) == russian
    assert decode("naïve".encode("cp1252"), "cp1252") == "naïve"


def test_signs_that_facilities_write_survive_in_files_of_any_length() -> None:
    for rows in (5, 20, 80, 400):
        text = "id;author;note\n" + "".join(f"{n};müller;temp 25 °C ± 2 µm at pump {n}\n" for n in range(rows))
        assert decode(text.encode("latin-1")) == text


def test_one_foreign_line_leaves_the_others_as_they_are() -> None:
    data = "Größe: ändern über Öl\n".encode() + "süd\n".encode("cp1252") + "Ende: äöü\n".encode()
    assert decode(data) == "Größe: ändern über Öl\nsüd\nEnde: äöü\n"


@pytest.mark.parametrize(("data", "binary"), [(b"text", False), (b"a\x00b", True), ("ab".encode("utf-16"), False)])
def test_binary_files_are_told_apart(data: bytes, binary: bool) -> None:
    assert is_binary(data) is binary
