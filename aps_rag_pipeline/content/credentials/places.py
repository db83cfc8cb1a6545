"""Values that stand where a password stands: an assignment, a command line, a sentence.

One search finds words that tell such places ("password", "token", "login" ...). What may follow such a word is
tried right behind it, what stands around it only in its line and the next. Where a word has other meanings too
(`token`, `pass`, `pw`), its value must look like a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from aps_rag_pipeline.content.credentials.spans import Span, merged
from aps_rag_pipeline.content.credentials.tables import cells_below_heads
from aps_rag_pipeline.content.credentials.values import (
    is_door_code,
    is_given,
    is_long,
    is_quoted_phrase,
    is_quoted_value,
    is_secret,
    is_short_keyword_value,
    is_told,
    is_value,
    trimmed,
)

Judge = Callable[[str], bool]

#: Words that name a password (`strong`), that have other meanings too (`weak`), that go before a pair of user and
#: password (`pair`), that only stand in commands (`command`). For texts in lower case; no PV name's `:PW:`.
_TRIGGER = re.compile(
    r"(?P<command>sshpass|authorization|identified by|curl |wget |mysql|(?:pin|door|access|entry|gate|alarm) code)"
    r"|(?P<strong>pass[ -]?[wpc]|passkey|pswd|pwd|(?<!:)pw|kennwort)"
    r"|(?P<weak>pass(?![a-z])|secret|token|(?:api|auth|access|account|service|client|private|db|database)[ _-]?key)"
    r"|(?P<pair>log ?[io]n|cred(?:s|ential))"
)
#: Some literal of every trigger. Branches without groups are found several times faster, and every text is searched.
_LITERAL = re.compile(
    r"pass|pswd|pwd|pw|kennwort|secret|token|key|code|login|logon|log in|log on|cred|authorization"
    r"|identified by|curl |wget |mysql"
)
#: How far before its literal a trigger can begin, and how long it is from there.
_LEAD, _LENGTH = 9, 24
_BEFORE, _AFTER = 200, 400
_INSIDE_A_WORD = frozenset("abcdefghijklmnopqrstuvwxyz0123456789:/$[")


def spoken(text: str) -> Iterator[Span]:
    """Where values stand that are passwords by their place, in no order."""
    rules = _rules()
    low = _lower(text)
    hits: dict[str, list[int]] = {}
    for start, family in _triggers(low):
        hits.setdefault(family, []).append(start)
        keyword = rules.keywords.get(family)
        if keyword is None or (start and low[start - 1] in _INSIDE_A_WORD):
            continue
        limit = min(len(text), start + _AFTER)
        if (word := keyword.match(text, start, limit)) is not None:
            for rule in rules.behind["short" if word[0].lower() == "pw" else family]:
                if (found := rule.pattern.match(text, word.end(), limit)) is not None:
                    yield from rule.judged(found)
    for family, starts in hits.items():
        windows = _windows(low, starts)
        for rule in rules.around[family]:
            for window in windows:
                for found in rule.pattern.finditer(text, *window):
                    yield from rule.judged(found)
        if family in ("strong", "weak"):
            yield from cells_below_heads(text, windows)


def _triggers(low: str) -> Iterator[tuple[int, str]]:
    """Start and family of each trigger, in order."""
    end = 0
    for literal in _LITERAL.finditer(low):
        lead = max(end, literal.start() - _LEAD)
        if (hit := _TRIGGER.search(low, lead, lead + _LENGTH)) is not None:
            end = hit.end()
            yield hit.start(), str(hit.lastgroup)


def _windows(low: str, starts: Iterable[int]) -> list[Span]:
    """The stretches around some places: their line and the next, at most some hundred characters of each."""
    windows: list[Span] = []
    for position in starts:
        limit = min(len(low), position + _AFTER)
        start = low.rfind("\n", max(0, position - _BEFORE), position) + 1 or max(0, position - _BEFORE)
        line_end = low.find("\n", position, limit)
        stop = low.find("\n", line_end + 1, limit) if line_end >= 0 else -1
        windows.append((start, stop if stop >= 0 else limit))
    return merged(windows)


def _lower(text: str) -> str:
    """Lower case of the same length (that of the dotted capital I is longer)."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


class _Rule(NamedTuple):
    """A place. Group `quoted` or `bare` of the pattern (or `group`, in quotes) is the value that its judge looks at."""

    pattern: re.Pattern[str]
    bare: Judge
    quoted: Judge
    group: int = 0

    def judged(self, found: re.Match[str]) -> Iterator[Span]:
        quoted: int | str = self.group or ("quoted" if "quoted" in self.pattern.groupindex else 0)
        if quoted and found[quoted] is not None:
            first, last = found.span(quoted)
            judge = self.quoted
        else:
            first = found.start("bare")
            last = first + len(trimmed(found["bare"]))
            judge = self.bare
        if first < last and judge(found.string[first:last]):
            yield first, last


class _Rules(NamedTuple):
    """By family: the whole keyword, what may follow it, what may stand around it."""

    keywords: dict[str, re.Pattern[str]]
    behind: dict[str, tuple[_Rule, ...]]
    around: dict[str, tuple[_Rule, ...]]


_STRONG = (
    r"(?:pass[ -]?word|pass ?wd|passwort|kennwort|pass[ -]?phrase|pass[ -]?code|passkey|pswd|pwd|pw)s?\d?(?![a-z])"
)
_WEAK = (
    r"(?:pass|secret(?:[ _-]?key)?|token|(?:api|auth|access|account|service|client|private|db|database)[ _-]?key)"
    r"s?\d?(?![a-z])"
)
_FOR = r"(?:\s*\([^)\n]{1,40}\)|[ \t]+(?:for|of|on|to|at|in|used by)[ \t]+[^\n:=;?]{1,50}?)?"
_SET = (
    r"[\"'\]*_`]{0,2}[ \t]*(?::=|=>|->|→|={1,3}|!==?|:)(?:[*_]{1,2}(?=[\s`]))?[ \t]*\n?[ \t]*"  # : = -> with its markup
)
_IS = r"[ \t]+(?:is|was|are|were)[ \t]+(?:(?:now|still|currently|again|set to|changed to)[ \t]+)?:?[ \t]*\n?[ \t]*"
_VALUE = (
    r"(?:(?:[*_]{1,2}(?=\S))?(?:@|b|r|f)?[\"'`“‘](?P<quoted>[^\n\"'`”’]{1,200})[\"'`”’]"
    r"|(?:[*_]{1,2})?(?P<bare>[^\s\"'`<>|“”]{1,200}))"
)
_USER = r"[\"'`*]{0,2}[A-Za-z][\w.@\\-]{1,40}[\"'`*]{0,2}"
_WORD = r"[\"'`]?(?P<bare>[^\s\"'`]{1,200})"


def _rule(pattern: str, bare: Judge, quoted: Judge | None = None) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), bare, quoted or bare)


@lru_cache(maxsize=1)
def _rules() -> _Rules:
    # password is now x · password x · | password | x |
    told = _rule(_FOR + _IS + _VALUE, is_told, is_quoted_phrase)
    beside = _rule(r"[ \t]*[ \t|][ \t]*" + _VALUE, is_secret)
    # chang(ed the password) to x
    changed = _rule(
        r"\b(?:chang|set|reset|updat)\w*\b[^\n.;]{0,40}?\b" + _STRONG + r"[^\n.;:=]{0,40}?[ \t]to[ \t]+" + _VALUE,
        is_secret,
        is_quoted_phrase,
    )
    # user/pw: ops x
    headed_pair = _rule(
        r"\b(?:user(?:name|id)?|login|id|account)[ \t]*(?:/|and|&|\+|,)[ \t]*(?:"
        + _STRONG
        + r"|pass\b)"
        + _FOR
        + r"[ \t]*(?:[:=]|is|are)[ \t]*"
        + _USER
        + r"[ \t]*(?:/|,|;|:|&|and\b|[ \t])[ \t]*"
        + _VALUE,
        is_value,
    )
    # login ops / x · log in as ops with x
    pair = _rule(
        r"\b(?:log[ \t]?[io]n|creds?|credentials?)\b[ \t]*(?:[:=]|as|is|are|with)?[ \t]*"
        + _USER
        + r"[ \t]*(?:/|\||,|;|&|\band\b|\bwith\b)[ \t]*(?:the[ \t]+)?(?:"
        + _STRONG
        + r"|pass\b)?[ \t]*[:=]?[ \t]*"
        + _VALUE,
        is_secret,
    )
    exported = _rule(
        r"\b(?:export|setenv|set|env)[ \t]+\w*(?:token|secret|passw(?:or)?d|pass|pwd|(?:api|access)_?key)\w*[ \t=]+"
        + _VALUE,
        is_given,
    )
    option = _rule(r"(?<![^\s\"'`])--?(?:" + _STRONG + r"|token|api-key|secret)[ \t=]+" + _VALUE, is_given)
    around = (headed_pair, exported, option, *_keyword_detector())
    return _Rules(
        keywords={"strong": re.compile(_STRONG, re.IGNORECASE), "weak": re.compile(_WEAK, re.IGNORECASE)},
        behind={
            # password: x · DB_PASSWORD=x · "password": "x" · password for the ioc account: x
            "strong": (_rule(_FOR + _SET + _VALUE, is_value, is_quoted_value), told, beside),
            "short": (_rule(_FOR + _SET + _VALUE, is_short_keyword_value, is_quoted_value), told, beside),
            "weak": (_rule(_SET + _VALUE, is_secret), _rule(_FOR + _IS + _VALUE, is_secret)),
        },
        around={
            "strong": (changed, *around),
            "weak": around,
            "pair": (pair, _rule(r"\bcred(?:ential)?s?" + _SET + _VALUE, is_secret)),
            "command": tuple(_commands()),
        },
    )


def _commands() -> Iterator[_Rule]:
    yield _rule(
        r"\b(?:curl|wget)\b[^\n]{0,200}?[ \t](?:-u|--user|--proxy-user)[ \t=]*[\"']?[^\s:\"']+:(?P<bare>[^\s\"']+)",
        is_given,
    )
    yield _rule(r"\bsshpass[ \t]+-p[ \t]*" + _VALUE, is_given)
    yield _rule(r"\bmysql\w*\b[^\n]{0,120}?[ \t]-p(?P<bare>[^\s\"']+)", is_given)
    yield _rule(r"\bidentified[ \t]+by[ \t]+(?:password[ \t]+)?[\"'](?P<bare>[^\s\"']+)[\"']", is_given)
    yield _rule(r"\bauthorization[\"']?[ \t]*[:=][ \t]*[\"']?(?:bearer|basic|token)[ \t]+" + _WORD, is_long)
    yield _rule(
        r"\b(?:pin|door|access|entry|gate|alarm)[ \t]code" + _FOR + r"[ \t]*(?:is|was|[:=])?[ \t]*(?:now[ \t])?"
        r"(?P<bare>\d{4,8}[#*]?)(?![\w.])",
        is_door_code,
    )


def _keyword_detector() -> Iterator[_Rule]:
    """The patterns by which detect-secrets finds quoted values of variables."""
    from detect_secrets.plugins.keyword import QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP

    for pattern, group in QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP.items():
        yield _Rule(pattern, is_quoted_value, is_quoted_value, group)
