"""What a question is taken to ask."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aps_rag_pipeline.knowledge import identifiers
from query.results import Intent, Understanding
from query.understanding import is_bare, understand

NAMES = {"wrq:20417", "20417", "s-dcct:currentm", "pv:s-dcct:currentm", "bely:12345", "klystrons", "s12a:q3:currentai"}
MENTIONS = {*NAMES, "rf2:kly1", "s12a:q3"}
WORDS = {"rf2", "window", "klystron", "current"}


class Known:
    def names(self, token: str) -> bool:
        return token in NAMES

    def mentions(self, token: str) -> bool:
        return token in MENTIONS

    def word(self, word: str) -> bool:
        return word.lower() in WORDS

    def spelled(self, text: str) -> str | None:
        squashed = "".join(c for c in text.lower() if c.isalnum())
        return next((n for n in sorted(NAMES) if "".join(c for c in n if c.isalnum()) == squashed), None)


def read(text: str) -> Understanding:
    return understand(text, Known(), datetime(2025, 6, 18, tzinfo=UTC), ZoneInfo("America/Chicago"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("WRQ:20417", "wrq:20417"),
        ("wrq 20417", "wrq:20417"),
        ("WR #20417", "wrq:20417"),
        ("work request 20417", "wrq:20417"),
        ("Work order no. 20417", "wrq:20417"),
        ("log entry 12345", "bely:12345"),
        ("20417", "20417"),
        ("S-DCCT:CurrentM", "s-dcct:currentm"),
        ("s-dcct:currentm", "s-dcct:currentm"),
        ("S-DCCT CurrentM", "s-dcct:currentm"),
        ("S DCCT CurrentM", "s-dcct:currentm"),
        ("s dcct currentm", "s-dcct:currentm"),
        ("S12A Q3 CurrentAI", "s12a:q3:currentai"),
        ("PV S-DCCT:CurrentM?", "pv:s-dcct:currentm"),
        ("s-dcct:currentm.VAL", "s-dcct:currentm"),
        ("klystrons", "klystrons"),
    ],
)
def test_bare_identifiers(text: str, found: str) -> None:
    understood = read(text)
    assert understood.identifiers[0] == found
    assert understood.unknown == []
    assert understood.intent == "identifier"
    assert is_bare(understood)


def test_an_identifier_inside_a_question_is_found_and_leaves_the_subject() -> None:
    understood = read("why did S12A Q3 CurrentAI drop last week?")
    assert understood.identifiers == ["s12a:q3:currentai"]
    assert understood.words == ["drop"]
    assert understood.intent == "troubleshooting"
    assert understood.window is not None
    assert understood.window.phrase == "last week"


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("what was done under WRQ 99999?", ["wrq:99999"]),
        ("why did RF9:KLY7 trip?", ["rf9:kly7"]),
        ("current of S77B:Q9:CurrentAI", ["s77b:q9:currentai"]),
        ("who fixed XB77?", ["xb77"]),
    ],
)
def test_identifiers_that_the_corpus_does_not_know(text: str, unknown: list[str]) -> None:
    understood = read(text)
    assert understood.unknown == unknown
    assert understood.identifiers == []


@pytest.mark.parametrize("text", ["the RF2 window", "it read 82.4kV for 10ms at 3am", "the 3rd klystron at 08:30"])
def test_values_and_known_words_are_no_unknown_identifiers(text: str) -> None:
    assert read(text).unknown == []


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("how many times did the klystron trip in 2025?", "statistics"),
        ("which system had the most downtime?", "statistics"),
        ("why did the klystron trip?", "troubleshooting"),
        ("how was the water leak fixed", "troubleshooting"),
        ("what is a thyratron?", "concept"),
        ("how do I start a klystron?", "concept"),
        ("what happened yesterday?", "time"),
        ("when was the window installed", "time"),
        ("which work request replaced the part that caused the trip in the log book?", "multi_hop"),
        ("current limit of the klystron in RF station 2", "fact"),
        ("water limits of a klystron", "concept"),
        ("rf2:kly1", "identifier"),
    ],
)
def test_intents(text: str, intent: Intent) -> None:
    assert read(text).intent == intent


def test_kinds_of_record_are_noticed() -> None:
    assert read("which work request and chat thread were about the klystron").sources == ["work_requests", "teams"]
    assert read("klystron gallery").sources == []


@given(st.text(max_size=200))
def test_any_text_is_understood(text: str) -> None:
    understood = read(text)
    assert set(understood.identifiers).isdisjoint(understood.unknown)
    assert all(word.strip() for word in understood.words)


@given(st.sampled_from(sorted(NAMES)), st.sampled_from([str.upper, str.lower, str.title]))
def test_letter_case_of_a_name_does_not_matter(name: str, change: object) -> None:
    assert callable(change)
    assert read(change(name)).identifiers == [name]


@pytest.mark.parametrize(
    "value", ["3.2kV", "10ms", "82.4", "120A", "5e-9Torr", "3rd", "24h", "08:30", "12:30:15", "60Hz", "4pm"]
)
def test_values_are_no_identifiers(value: str) -> None:
    assert identifiers.find(value) == []


@pytest.mark.parametrize(
    "name", ["S12A:Q3", "RF2", "ID05u", "2bma:m1", "iocs05amag", "APS_1273342", "35-ID-D", "12345", "A1"]
)
def test_names_are_identifiers(name: str) -> None:
    assert identifiers.find(f"see {name}, please") == [name.lower()]
