"""Answers shown to people as tables, and to programs as stable JSON.

Text of a source is shown, never obeyed: rich markup in it is plain text, and terminal escape sequences, control
characters and signs that turn the direction of writing are made visible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

from query.results import Answer, CorpusStatus, Hit, RecordView, Result, SearchResult

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text

#: C0 and C1 controls (line break and tab apart), and the marks that reorder or hide what follows.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)
_SHOWN_WORDS = 60


def safe(text: str) -> str:
    """Text that does nothing to a terminal: unsafe characters are written as `\\x1b` and the like."""
    return _UNSAFE.sub(_visible, text)


def to_json(result: Result | Iterable[Result]) -> str:
    """Two-space JSON with the fields in their declared order; the text of sources cannot act on a terminal."""
    value: Any = result.to_dict() if isinstance(result, Result) else [item.to_dict() for item in result]
    # JSON escapes C0 controls by itself; the rest is escaped here in its own notation.
    return _UNSAFE.sub(_json_escape, json.dumps(value, ensure_ascii=False, indent=2))


def render_search(result: SearchResult, zone: tzinfo | None = None) -> Group:
    from rich.console import Group

    if not result.hits:
        return Group(_text("Nothing was found that you may see.", "yellow"), _footer(result))
    return Group(_hits(result.hits, zone), _footer(result))


def render_answer(answer: Answer, zone: tzinfo | None = None) -> Group:
    """The answer with its citations, then what it rests on, or the nearest records where there is none."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if answer.answered:
        told = Text()
        for sentence in answer.sentences:
            told.append(safe(sentence.text) + " ")
            told.append(" ".join(f"[{safe(key)}]" for key in sentence.keys) + "\n", "cyan")
        parts += [told, _evidence(answer, zone)]
    else:
        parts.append(_text(answer.text, "yellow"))
        if answer.nearest:
            parts += [_text("Nearest records:", "bold"), _hits(answer.nearest, zone)]
    searched = answer.searched
    kinds = ", ".join(searched.sources) or "nothing"
    parts.append(_text(f"Searched {searched.records} records ({kinds}), release {answer.release}.", "dim"))
    return Group(*parts)


def render_record(record: RecordView, zone: tzinfo | None = None) -> Group:
    from rich.console import Group

    table = _table("", "")
    facts = {
        "key": record.key,
        "title": record.title,
        "created": _time(record.created_at, zone),
        "modified": _time(record.modified_at, zone),
        "author": record.author,
        "url": record.url,
        "groups": ", ".join(record.access),
        **{name: ", ".join(map(str, v)) if isinstance(v, list) else str(v) for name, v in record.fields.items()},
    }
    for name, value in facts.items():
        if value:
            table.add_row(_text(name, "bold"), _text(value))
    parts: list[RenderableType] = [table]
    for passage in record.passages:
        place = " · ".join(piece for piece in (passage.locator, passage.title) if piece)
        parts += [_text(place, "cyan"), _text(passage.text + "\n")] if place else [_text(passage.text + "\n")]
    if record.links:
        links = _table("link", "to", "as written")
        for link in record.links:
            links.add_row(_text(link.kind), _text(link.target), _text(link.text))
        parts.append(links)
    return Group(*parts)


def render_status(status: CorpusStatus, zone: tzinfo | None = None) -> Group:
    from rich.console import Group

    table = _table("source", "feed", "records", "newest")
    for feed in status.feeds:
        row = (feed.source, feed.feed, f"{feed.records:,}", _time(feed.newest_at, zone))
        table.add_row(*(_text(cell) for cell in row))
    head = (
        f"{status.facility}: release {status.release}, published {_time(status.published_at, zone)}; "
        f"{status.records:,} records, {status.passages:,} passages, {status.chunks:,} chunks; model {status.model}"
    )
    return Group(_text(head), table)


def _hits(hits: Iterable[Hit], zone: tzinfo | None) -> Table:
    table = _table("#", "key", "date", "title and passage", "found by")
    for place, hit in enumerate(hits, start=1):
        told = _text(hit.title, "bold")
        told.append(f"\n{safe(hit.snippet)}")
        ranks = " ".join(f"{name}:{rank}" for name, rank in hit.channels.items())
        table.add_row(str(place), _text(hit.key, "cyan"), _text(_date(hit.created_at, zone)), told, _text(ranks, "dim"))
    return table


def _evidence(answer: Answer, zone: tzinfo | None) -> Table:
    cited = {key for sentence in answer.sentences for key in sentence.keys}
    table = _table("cited", "date", "title and passage", "where")
    for item in answer.evidence:
        if cited.isdisjoint((item.key, *item.also)):
            continue
        keys = "\n".join((item.key, *item.also))
        words = item.text.split()
        told = _text(item.title, "bold")
        told.append("\n" + safe(" ".join(words[:_SHOWN_WORDS])) + (" …" if len(words) > _SHOWN_WORDS else ""))
        where = "\n".join(piece for piece in (item.locator, item.url) if piece)
        table.add_row(_text(keys, "cyan"), _text(_date(item.created_at, zone)), told, _text(where, "dim"))
    return table


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=any(columns), pad_edge=False)
    for column in columns:
        # Keys and places are copied from here: they wrap, they are never cut.
        table.add_column(column, overflow="fold")
    return table


def _footer(result: SearchResult) -> Text:
    asked = result.understanding
    notes = [f"release {result.release}", f"{result.mode} search", f"model {result.model}", f"read as {asked.intent}"]
    if asked.unknown:
        notes.append(f"in no record: {', '.join(asked.unknown)}")
    if asked.window is not None:
        notes.append(
            f"time “{asked.window.phrase}” " + ("applied" if asked.window_applied else "found nothing, so left out")
        )
    return _text("; ".join(notes), "dim")


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(safe(text), style=style)


def _time(moment: datetime | None, zone: tzinfo | None) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z") if moment else ""


def _date(moment: datetime | None, zone: tzinfo | None) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d") if moment else ""


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(match: re.Match[str]) -> str:
    char = match.group()
    if ord(char) < 0x10000:
        return f"\\u{ord(char):04x}"
    high, low = divmod(ord(char) - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
