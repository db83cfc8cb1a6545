"""What a question asks for: identifiers, a stretch of time, kinds of record, an intent, and the words that are left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Protocol
from zoneinfo import ZoneInfo

from aps_rag_pipeline.knowledge import identifiers
from query.places import numbered
from query.results import Intent, Understanding
from query.times import ShiftLike, find_window
from query.words import STOPWORDS, content_words

#: A question is read up to here; what follows is a pasted text, not a question.
LONGEST_QUESTION = 2_000
#: Most words that a process variable typed with blanks falls into.
LONGEST_NAME = 6
#: With no more content words than this beside a date, it is the date that matters.
_FEW_WORDS = 2

_KEYED = re.compile(r"^(?:bely|icms|wrq|teams|down|sdds|code|wiki|pv):.", re.IGNORECASE)
_SOURCE_WORDS: dict[str, re.Pattern[str]] = {
    source: re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
    for source, words in {
        "bely": r"log\s?book|log\s+entr(?:y|ies)|logged|e-?log|bely|shift\s+log|in\s+the\s+logs?",
        "icms": r"documents?|papers?|publications?|preprint|reports?|manuscript|icms|technical\s+note|arxiv|doi",
        "work_requests": r"work\s+(?:request|order)s?|wrq?s?|tickets?|maintenance\s+request",
        "teams": r"chat(?:s|ted)?|teams|messages?|threads?|screenshots?|channel\s+(?:said|discussed)|posted",
        "downtime": r"downtimes?|outages?|beam\s+(?:loss|lost|dump|trip)s?|lost\s+beam|beam\s?time|"
        r"(?:stop(?:s|ped)?|interrupt(?:s|ed)?|took|takes?)\s+(?:the\s+|our\s+)?beam|no\s+beam|beam\s+(?:down|off|away)",
        "sdds_docs": r"sdds\w*|manual\s+pages?|command[\s-]line\s+options?",
        "code": r"scripts?|source\s+code|functions?|procs?|procedures?\s+in\s+code|repositor(?:y|ies)|modules?|tcl",
        "wiki": r"wiki|how-?to|procedures?|checklists?|instructions|guides?",
        "epics": r"pvs?|process\s+variables?|channel\s+names?|readbacks?|setpoints?|epics|signals?",
    }.items()
}
_STATISTICS = re.compile(
    r"\b(?:how\s+(?:many|often|frequently)|number\s+of|counts?|average|mean\s+time|total|sum\s+of|percent(?:age)?|"
    r"most\s+(?:often|frequent(?:ly)?|common|downtime|trips)|trends?|statistics|longest|shortest|per\s+(?:month|week|run))\b",
    re.IGNORECASE,
)
_TROUBLE = re.compile(
    r"\b(?:why|cause[ds]?|root\s+cause|reasons?|fix(?:ed|es)?|repair(?:ed)?|resol(?:ve|ved|ution)|troubleshoot\w*|"
    r"trip(?:s|ped|ping)?|fault(?:s|ed|ing)?|fail(?:s|ed|ure|ing)?|alarm(?:s|ing)?|errors?|broken?|won'?t|stuck|"
    r"leak(?:s|ed|ing)?|dropp?(?:s|ed|ing)?|went\s+(?:off|down|bad)|problems?|wrong|cured?|brought\s+back|behind|led\s+to|get(?:ting)?\s+over|got\s+over|help(?:s|ed)?|cures?|remed(?:y|ies|ied)|trouble)\b",
    re.IGNORECASE,
)
_CONCEPT = re.compile(
    r"^\W*(?:what(?:'s|\s+is|\s+are)\s+(?:an?|the\s+(?:purpose|meaning|difference|principle|idea|definition))\b|"
    r"what\s+does\s+.+\b(?:mean|do|stand\s+for)\b|how\s+(?:does|do|is|are|should|to|can)\b|explain|define|describe)",
    re.IGNORECASE,
)
_WHEN = re.compile(r"^\W*(?:when|what\s+(?:time|date|day)|what\s+happened|anything|what\s+went)\b", re.IGNORECASE)
#: One thing asked of another: "the serial number put in after ...", "the hours lost because of ...".
_JOINED = re.compile(
    r"\b(?:that\s+(?:caused|fixed|led|followed|resolved)|which\s+(?:caused|led|in\s+turn)|related\s+to|linked\s+to|"
    r"as\s+a\s+result|after\s+which|and\s+(?:what|which|who|when|how|why)|after|following|because\s+of|due\s+to|"
    r"ahead\s+of|prior\s+to|in\s+response\s+to|recover(?:ed|ing)?\s+from|(?:deal|dealt)\s+with|los[et]\s+to|"
    r"warn(?:ed|ing)\s+of)\b",
    re.IGNORECASE,
)
_KINDS = """
pv pvs process variable record work request wrq wr log entry entries bely document icms downtime device number id key
event thread page file order number show open display
"""
_LATER = re.compile(
    r"\b(?:later?|afterwards?|belated(?:ly)?|retrospect\w*|in\s+hindsight|after\s+the\s+fact)\b", re.IGNORECASE
)
#: Words that say only what kind of thing an identifier is.
_KIND_WORDS = frozenset(_KINDS.split())
#: A digit, a joining sign, or a capital inside a word: what names have and prose has not.
_NAME_SIGN = re.compile(r"\d|[:_-]|\B[A-Z]")


class Lexicon(Protocol):
    """What the reader's part of the corpus knows; never tells of anything else."""

    def names(self, token: str) -> bool:
        """Whether a record is called so (normal form)."""

    def mentions(self, token: str) -> bool:
        """Whether a text holds this identifier (normal form)."""

    def word(self, word: str) -> bool:
        """Whether a text holds this word or part of an identifier."""

    def spelled(self, text: str) -> str | None:
        """Normal form of the record that is called so but for blanks, case and signs."""


def cleaned(text: str) -> str:
    """A question on one line, as far as it is read."""
    return re.sub(r"\s+", " ", text).strip()[:LONGEST_QUESTION]


def understand(
    text: str,
    lexicon: Lexicon,
    now: datetime,
    zone: ZoneInfo,
    shifts: Sequence[ShiftLike] = (),
) -> Understanding:
    """Read a question. `now` is an aware time, against which relative phrases are meant."""
    text = cleaned(text)
    found = find_window(text, now, zone, shifts)
    # An identifier may look like a date ("DOWN:2025-0412"); dates are cut out only where no name holds them.
    rest = _without(text, found.spans if found else ())
    known, unknown = _identifiers(rest, lexicon)
    subject = _subject_words(rest, [*known, *unknown])
    # A field of a known process variable (`.VAL`) need not be known itself.
    unknown = [token for token in unknown if token.rpartition(".")[0] not in known]
    intent = _intent(text, known + unknown, subject, found is not None)
    return Understanding(
        text=text,
        intent=intent,
        identifiers=known,
        unknown=unknown,
        words=subject,
        sources=[source for source, pattern in _SOURCE_WORDS.items() if pattern.search(rest)],
        window=found.window if found else None,
        told_later=found is not None and (intent == "statistics" or bool(_LATER.search(rest))),
    )


def is_bare(understanding: Understanding) -> bool:
    """Whether the question is an identifier and nothing else."""
    return understanding.intent == "identifier" and not understanding.words


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + " " + text[end:]
    return text


def _identifiers(text: str, lexicon: Lexicon) -> tuple[list[str], list[str]]:
    """Identifiers of a question that the corpus knows, and those that it does not."""
    known: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for token in _typed_with_blanks(text, lexicon):
        known[token] = None
    for token in identifiers.find(text):
        if any(token in name.split(":") for name in known):
            continue
        if lexicon.names(token) or lexicon.mentions(token):
            known[token] = None
        elif spelled := lexicon.spelled(token):
            known[spelled] = None
        elif _must_exist(token) or not all(lexicon.word(part) for part in re.findall(r"[^\W_]+", token)):
            unknown[token] = None
    if (
        not known
        and not unknown
        and len(words := text.strip(" ?.!\"'").split()) == 1
        and lexicon.names(words[0].lower())
    ):
        known[words[0].lower()] = None
    # `WRQ 20417` gives both its key and its number: the number alone says nothing once the key is known or not.
    for token in [*known, *unknown]:
        number = token.partition(":")[2]
        if _KEYED.match(token):
            unknown.pop(number, None)
            if number in known:
                known.pop(number)
    return list(known), list(unknown)


def _must_exist(token: str) -> bool:
    """Whether an identifier is so particular that a question about it has no answer where it is unknown."""
    return bool(_KEYED.match(token)) or (":" in token and "//" not in token)


def _typed_with_blanks(text: str, lexicon: Lexicon) -> Iterator[str]:
    """Names of records that the question spells with blanks or other signs, the longest first."""
    tokens = [token for word in text.split() if (token := word.strip("?!,;()[]\"'.").rstrip(":"))]
    taken: set[int] = set()
    for size in range(min(LONGEST_NAME, len(tokens)), 1, -1):
        for start in range(len(tokens) - size + 1):
            places = range(start, start + size)
            piece = tokens[start : start + size]
            if taken.intersection(places) or all(word.lower() in STOPWORDS for word in piece):
                continue
            joined = " ".join(piece)
            name = identifiers.normal(joined)
            if not lexicon.names(name):
                spelled = lexicon.spelled(joined) if size == len(tokens) or _NAME_SIGN.search(joined) else None
                if spelled is None:
                    continue
                name = spelled
            taken.update(places)
            yield name


def _subject_words(text: str, found: Sequence[str]) -> list[str]:
    """Content words beside the identifiers and the words that only say what kind of thing those are."""
    parts = {part for token in found for part in re.findall(r"[^\W_]+", token)}
    kinds = _KIND_WORDS if found else frozenset()
    return [word for word in content_words(text) if word.lower() not in parts and word.lower() not in kinds]


def _intent(text: str, found: Sequence[str], words: Sequence[str], timed: bool) -> Intent:
    if found and not words:
        return "identifier"
    joined = bool(_JOINED.search(text))
    if _STATISTICS.search(text) and (timed or not joined):
        return "statistics"
    named = [match.start() for pattern in _SOURCE_WORDS.values() if (match := pattern.search(text))]
    far_apart = any(b - a > 12 for a, b in pairwise(sorted(named)))
    if joined or (len(named) > 1 and far_apart and len(words) > 3):
        return "multi_hop"
    if _CONCEPT.match(text) and not found:
        return "concept"
    if _WHEN.match(text):
        return "time"
    if _TROUBLE.search(text):
        return "troubleshooting"
    if timed:
        return "time" if len(words) <= _FEW_WORDS else "fact"
    # What names no thing, place or time is about how things are in general.
    return "fact" if found or numbered(text) else "concept"
