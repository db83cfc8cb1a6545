"""References that a text itself states: citation keys, numbers with the name of what they are, PVs, addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from aps_rag_pipeline.content.markup import bare_urls, markdown_links
from aps_rag_pipeline.records import KEY_PREFIX, Link, LinkKind

KIND_OF_PREFIX: dict[str, LinkKind] = {
    "BELY": "log_entry",
    "ICMS": "document",
    "WRQ": "work_request",
    "TEAMS": "chat",
    "DOWN": "downtime",
    "SDDS": "document",
    "CODE": "file",
    "WIKI": "wiki",
    "PV": "process_variable",
}
assert KIND_OF_PREFIX.keys() == set(KEY_PREFIX.values())


class _Named(NamedTuple):
    """A word that names what the numbers behind it are."""

    prefix: str
    pattern: re.Pattern[str]


# Blanks are counted, since open-ended ones next to each other take quadratic time on a hostile text.
_MORE = r"(?:\s{{0,3}}(?:,|;|&|/|and|or)\s{{0,3}}#?{number})*"


def _named(prefix: str, words: str, number: str) -> _Named:
    # A number that goes on as a date, a time or a decimal is none of these ids.
    whole = rf"(?:{number})(?![\w/:]|[.-]\d)"
    pattern = rf"\b(?:{words})\s{{0,3}}#?\s{{0,3}}({whole}{_MORE.format(number=whole)})"
    return _Named(prefix, re.compile(pattern, re.IGNORECASE))


_NAMED = (
    _named("WRQ", r"(?:WRQ|WR|WO|work[ -]?(?:request|order))s?(?:\s{0,3}(?:no\.?|number|id))?[\s:#]", r"\d{3,9}"),
    _named(
        "BELY",
        r"(?:BELY|logs?|log[ -]?entr(?:y|ies)|log[ -]?ids?|logids?)(?:\s{0,3}(?:no\.?|number|id))?[\s:#=]",
        r"\d{2,9}",
    ),
    _named("DOWN", r"(?:DOWN|downtime)(?:\s{0,3}(?:event|record|report|id|no\.?))?[\s:#]", r"\d{4}-\d{2,6}"),
)
_KEY = re.compile(rf"(?<![\w:/.-])({'|'.join(KIND_OF_PREFIX)}):([^\s,;()\[\]<>\"'`|]+)")
_CONTENT_ID = re.compile(r"(?<![\w:/.-])(?:APSU?_\d{4,}|U\d{7}-\d{6}(?:\.[A-Z]{3})?)(?![\w-])")
_LOG_URL = re.compile(r"[?&]logId=(\d{1,9})\b|/log/(?:entry/)?(\d{1,9})(?![\w.-])", re.IGNORECASE)
_CONTENT_URL = re.compile(r"[?&]dDocName=([\w.-]+)", re.IGNORECASE)
_PV = re.compile(r"(?<![\w:/.@#-])[A-Za-z0-9][\w-]*(?::[\w#-]+(?:\.[\w#-]+)*)+(?![\w:]*//)")
_CLOCK = re.compile(r"\d{1,2}(?::\d{2})+\w{0,2}|\d{4}-\d\d-\d\dT.*|(?:[0-9A-Fa-f]{2}:){3,}[0-9A-Fa-f]{2}")
_DEVICE = re.compile(r"[A-Z0-9_-]+:[A-Z]{1,6}\d{0,3}[A-Z]?")
_UNLIKE_WORDS = re.compile(r"[\d_-]|[a-z][A-Z]")
_NUMBER = re.compile(r"\d[\d-]*")


def find_references(text: str) -> tuple[Link, ...]:
    """Every reference that a text (plain or Markdown) states, once each, in the order of kinds below.

    Targets: a citation key (without a feed in it) for records, the bare name for a process variable, the URL itself
    for an address. Addresses that point at a log entry or a controlled document give that reference as well.
    """
    urls = _urls(text)
    plain = text
    for link in urls:  # a name inside an address is not a reference of its own
        plain = plain.replace(link.target, " ")
    found = dict.fromkeys([*_keys(plain), *_numbers(plain), *_process_variables(plain), *_inside(urls), *urls])
    return tuple(found)


def is_process_variable(token: str) -> bool:
    """Whether a token has the shape of a PV name: parts joined by colons that begin with a device, not a clock time.

    Two words around a colon (`NOTE:beam`) are prose; a name has three parts, a digit, a hyphen, an underscore or a
    capital inside a word. A sector and a device (`S38A:H3`) name hardware, not one of its variables.
    """
    device, *rest = token.split(":")
    if not rest or device in KIND_OF_PREFIX or _CLOCK.fullmatch(token) or _DEVICE.fullmatch(token):
        return False
    letters = any(char.isalpha() for char in device)
    named = device == device.upper() or any(char.isdigit() for char in device)
    inner = len(rest) > 1 or bool(_UNLIKE_WORDS.search(token))
    return letters and named and inner and any(char.isalpha() for char in "".join(rest))


def _keys(text: str) -> Iterator[Link]:
    for prefix, rest in _KEY.findall(text):
        name = rest.rstrip(".:!?*_/")
        if name:
            yield Link(KIND_OF_PREFIX[prefix], name if prefix == "PV" else f"{prefix}:{name}")


def _numbers(text: str) -> Iterator[Link]:
    for prefix, pattern in _NAMED:
        for match in pattern.finditer(text):
            for number in _NUMBER.findall(match.group(1)):
                yield Link(KIND_OF_PREFIX[prefix], f"{prefix}:{number}")
    for content_id in _CONTENT_ID.findall(text):
        yield Link("document", f"ICMS:{content_id}")


def _process_variables(text: str) -> Iterator[Link]:
    for token in _PV.findall(text):
        if is_process_variable(token):
            yield Link("process_variable", token)


def _urls(text: str) -> list[Link]:
    links = [Link("url", link.target, link.text) for link in markdown_links(text) if "://" in link.target]
    known = {link.target for link in links}
    return links + [Link("url", url) for url in bare_urls(text) if url not in known and url.rstrip(")") not in known]


def _inside(urls: list[Link]) -> Iterator[Link]:
    for link in urls:
        for first, second in _LOG_URL.findall(link.target):
            yield Link("log_entry", f"BELY:{first or second}")
        for content_id in _CONTENT_URL.findall(link.target):
            yield Link("document", f"ICMS:{content_id}")
