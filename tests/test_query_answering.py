"""Passages cut into statements, statements checked against their sources, and answers chosen or declined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aps_rag_pipeline.stores import sparse
from query import answering, words
from query.checking import numbers, unsupported
from query.results import Evidence, Sentence


def test_sentences_keep_abbreviations_names_and_decimals_whole() -> None:
    text = (
        "Dr. Abbott set S12A:Q3.VAL to 3.25 kV, i.e. 5 percent more than No. 4 had. RF2 tripped at 03:12! "
        "Did J. Keller see it? See Fig. 3 and sddsplot.tex for e.g. Octupole data."
    )
    assert words.sentences(text) == [
        "Dr. Abbott set S12A:Q3.VAL to 3.25 kV, i.e. 5 percent more than No. 4 had.",
        "RF2 tripped at 03:12!",
        "Did J. Keller see it?",
        "See Fig. 3 and sddsplot.tex for e.g. Octupole data.",
    ]


def test_table_rows_are_told_with_their_headings() -> None:
    text = "Trips\n\n| System | Hours |\n| --- | ---: |\n| RF | 3.5 |\n| Water \\| air |  |\n\nAll of March."
    assert words.statements(text, "mixed") == [
        "Trips",
        "System: RF; Hours: 3.5",
        "System: Water | air",
        "All of March.",
    ]


def test_lines_of_a_log_are_statements_and_wrapped_prose_is_joined() -> None:
    log = "0312 RF2 tripped on arc\n0320 reset, came right back\n- window looks cracked\n- called expert"
    assert words.statements(log, "transcript") == [
        "0312 RF2 tripped on arc",
        "0320 reset, came right back",
        "- window looks cracked",
        "- called expert",
    ]
    prose = "The filament must be raised slowly because the cathode would\notherwise crack. Wait for an hour."
    assert words.statements(prose) == [
        "The filament must be raised slowly because the cathode would otherwise crack.",
        "Wait for an hour.",
    ]


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=400))
def test_statements_lose_no_word_of_prose(text: str) -> None:
    plain = " ".join(c for c in text.replace("|", " ").split("\n"))
    assert "".join(words.words(" ".join(words.statements(plain)))) == "".join(words.words(plain))


def test_stems_are_those_of_the_index(tmp_path) -> None:
    text = "Klystrons TRIPPED repeatedly; café S-DCCT:CurrentM replacing"
    index = sparse.create_index(tmp_path / "index")
    parsed = str(index.parse_query(" ".join(words.words(text.lower())), ["text"]))
    assert all(f'"{stem}"' in parsed for stem in words.stems(text))


def test_snippet_shows_the_words_asked_for() -> None:
    text = "nothing here " * 60 + "the cracked output window was replaced " + "more noise " * 60
    shown = words.snippet(text, ["window", "cracked"])
    assert "cracked output window" in shown
    assert len(shown) < 260


EVIDENCE = [
    Evidence("BELY:1", "", "RF2 trip", "BELY:1#0", "", "RF2:KLY1 tripped at 82.40 kV, 1,200 counts.", also=["BELY:2"]),
    Evidence("WRQ:7", "", "Window", "WRQ:7#0", "", "Replaced the window of RF2:KLY1."),
]


@pytest.mark.parametrize(
    ("text", "keys", "problem"),
    [
        ("RF2:KLY1 tripped at 82.4 kV.", ["BELY:1"], None),
        ("RF2:KLY1 tripped at 82.4 kV.", ["BELY:1", "BELY:2"], None),
        ("It gave 1200 counts.", ["BELY:2"], None),
        ("RF2:KLY1 tripped at 83 kV.", ["BELY:1"], "83 stands in no cited passage"),
        ("RF2:KLY1 tripped at 82.4 kV.", ["WRQ:7"], "82.4 stands in no cited passage"),
        ("RF2:KLY2 tripped.", ["BELY:1"], "rf2:kly2 stands in no cited passage"),
        ("The window was replaced.", ["WRQ:8"], "WRQ:8 is not in evidence"),
        ("The window was replaced.", [], "no source is cited"),
    ],
)
def test_checker(text: str, keys: list[str], problem: str | None) -> None:
    problems = unsupported(Sentence(text, keys), EVIDENCE)
    assert problems == [] if problem is None else problem in problems


@given(st.decimals(0, 10**6, places=3, allow_nan=False))
def test_one_number_has_one_form(value: object) -> None:
    plain = f"{value}"
    assert numbers(f"{plain} V") == numbers(f"+{plain}0 V")


def test_rare_words_weigh_more() -> None:
    counts = {"trip": 900, "klystron": 400, "window": 3}
    weigher = answering.Weigher(["klystron", "window", "tripped"], lambda stem: counts.get(stem, 0), 1000)
    assert weigher.coverage(("the window", 1.0)) > weigher.coverage(("klystron trips", 1.0))
    assert weigher.coverage(("klystron window trip", 1.0)) == pytest.approx(1.0)
    assert weigher.coverage(("klystron window trip", 0.5)) == pytest.approx(0.5)


def test_a_release_may_carry_its_own_thresholds() -> None:
    assert answering.Thresholds.of({"answer.sufficient": 0.9}).sufficient == 0.9
    assert answering.Thresholds.of({}) == answering.Thresholds()
