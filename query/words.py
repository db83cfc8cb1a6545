"""Words of questions and passages: stems as the BM25 index makes them, and text cut into statements."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tantivy

_QUESTION_WORDS = """
a able about above actually after again ago all also am an and any anybody anyone anything are around as at back bad
be because been before behind being below between both but by came can case cause caused causes come comes
concerning content contents could currently describe description detail details did different do does doing done
down during each either else ever every exactly explain find first for from further gave get gets getting give given
go goes going got had happen happened happens has have having he help helped helping helps her here him his how i if
in info information into is it its just kind know known last latest learn learned let list look looked looking made
make many may me mean means meant might more most much must my near need needed needs next no nor not now occurrence
of off on once one only or other our out over past per please possible previous previously put question really
reason reasons recall recent recently regarding remember same say says see seen shall she should show showed since
so some someone something sort such summarise summarize summary take taken takes tell than that the their them then
there these they thing things this those through time times to today told too took type under until up upon us use
used using very want wanted wants was way ways we went were what whatever when where whether which while who whom
whose why will with within without wonder wondering would wrong yes yet you your
"""
#: Words that carry a question but not its subject.
STOPWORDS = frozenset(_QUESTION_WORDS.split())

_WORD = re.compile(r"[^\W_]+(?:['’][a-z]{1,2}\b)?", re.UNICODE)
#: Ends of abbreviations after which a sentence goes on.
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|ca|no|nos|fig|figs|eq|eqs|sec|ref|refs|dr|mr|mrs|ms|prof|st|dept|bldg|rm|ext|"
    r"temp|temps|max|min|avg|vol|rev|ver|pp?|al|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|a\.m|p\.m|u\.s|"
    r"inc|ltd|co|hr|hrs|sec|mins?)|\b[A-Za-z])\.$",
    re.IGNORECASE,
)
_END = re.compile(r"[.!?]+[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])")
_TABLE_RULE = re.compile(r"^\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?$")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_ITEM = re.compile(r"^(?:[-*+•>#]|\d{1,3}[.)]|\[)\s?")
_LABEL = re.compile(r"^[A-Z][\w /-]{1,30}:\s")
_SAYS_SOMETHING = re.compile(r"[^\W_]")
#: A line shorter than this was ended by its writer, not by a margin.
_WRAPPED = 50
_WORD_START = re.compile(r"(?<=\s)(?=\S)")
_LONGEST = 600


@cache
def _analyzer() -> tantivy.TextAnalyzer:
    import tantivy

    return (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.remove_long(60))
        .filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.ascii_fold())
        .filter(tantivy.Filter.stemmer("english"))
        .build()
    )


def stems(text: str) -> list[str]:
    """Stems in order of appearance, as the index's text field has them."""
    found: list[str] = _analyzer().analyze(text)
    return found


@lru_cache(maxsize=4_096)  # what stands between two blanks may be long
def _stems_of_word(word: str) -> frozenset[str]:
    return frozenset(stems(word))


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def content_words(text: str) -> list[str]:
    """Words of a question that say what it is about, each once, as typed."""
    kept = (w for w in words(text) if w.lower() not in STOPWORDS and (len(w) > 1 or w.isdigit()))
    return list({word.lower(): word for word in kept}.values())


def statements(text: str, kind: str = "prose") -> list[str]:
    """A passage cut into what can be quoted alone: sentences, messages, lines of code, and table rows with headings."""
    lines = [line.strip() for line in text.splitlines()]
    if kind == "code":
        return [line for line in lines if _SAYS_SOMETHING.search(line)]
    found: list[str] = []
    block: list[str] = []
    index = 0
    while index < len(lines):
        rows, after = _table(lines, index)
        if rows or not lines[index] or (block and _begins(lines[index], block[-1])):
            found += sentences(" ".join(block))
            block = []
        if rows:
            found += rows
            index = after
            continue
        if lines[index]:
            block.append(lines[index])
        index += 1
    found += sentences(" ".join(block))
    return [piece for piece in found if _SAYS_SOMETHING.search(piece)]


def _begins(line: str, previous: str) -> bool:
    """Whether a line starts something new, rather than going on with a sentence that was wrapped at the margin."""
    if _ITEM.match(line) or _LABEL.match(line):
        return True
    if line[0].islower():
        return False
    return len(previous) < _WRAPPED or previous.endswith((".", "!", "?", ":", ";"))


def _table(lines: list[str], index: int) -> tuple[list[str], int]:
    """Rows of the pipe table that starts at a line, each told with its headings, and the line behind the table."""
    if index + 1 >= len(lines) or "|" not in lines[index] or not _TABLE_RULE.match(lines[index + 1]):
        return [], index
    headings = _cells(lines[index])
    rows: list[str] = []
    index += 2
    while index < len(lines) and "|" in lines[index]:
        cells = _cells(lines[index])
        told = [
            f"{headings[place]}: {cell}" if place < len(headings) and headings[place] else cell
            for place, cell in enumerate(cells)
            if cell
        ]
        rows.append("; ".join(told)[:_LONGEST])
        index += 1
    return rows or ["; ".join(headings)], index


def _cells(row: str) -> list[str]:
    return [
        cell.replace("\\|", "|").strip() for cell in _CELL_BORDER.split(row.strip().removeprefix("|").removesuffix("|"))
    ]


def sentences(text: str) -> list[str]:
    """Sentences of running text; abbreviations, initials, decimals and names with points stay whole."""
    found: list[str] = []
    start = 0
    for match in _END.finditer(text):
        head = text[start : match.end()].rstrip()
        if _ABBREVIATION.search(head.rstrip("\"')]")) and not head.endswith(("!", "?")):
            continue
        found.append(head)
        start = match.end()
    found.append(text[start:].strip())
    return [piece for sentence in found if sentence for piece in _bounded(sentence)]


def _bounded(sentence: str) -> list[str]:
    """A run-on text in pieces that can be shown, cut at blanks."""
    pieces = []
    while len(sentence) > _LONGEST:
        cut = sentence.rfind(" ", 0, _LONGEST)
        cut = cut if cut > 0 else _LONGEST
        pieces.append(sentence[:cut].strip())
        sentence = sentence[cut:].strip()
    return [*pieces, sentence]


def snippet(text: str, question: list[str], length: int = 240) -> str:
    """The stretch of a passage that holds most of the question's words, on one line."""
    flat = " ".join(text.split())
    if len(flat) <= length:
        return flat
    wanted = {stem for word in question for stem in stems(word)}
    pieces = _WORD_START.split(flat)
    places = [0]
    for piece in pieces:
        places.append(places[-1] + len(piece))
    marks = [place for piece, place in zip(pieces, places, strict=False) if wanted & _stems_of_word(piece)]
    best = max(marks, key=lambda start: (sum(start <= mark < start + length - 40 for mark in marks), -start), default=0)
    start = next((place for place in places if place >= max(best - 30, 0)), 0)
    cut = flat[start : start + length]
    if start + length < len(flat):
        cut = cut[: cut.rfind(" ")] if " " in cut else cut
    return ("… " if start else "") + cut.strip() + (" …" if start + length < len(flat) else "")
