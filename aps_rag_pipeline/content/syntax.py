"""Program text to stretches of whole lines: one per function, class, procedure or section, none lost, none twice.

A stretch is what a reader wants to see at once: a function with the comment above it, a group of tiny ones, a piece of
a very long one cut at a statement's border. Borders lie between lines, so the stretches in order are the file again.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from aps_rag_pipeline.content.languages import DEFINITIONS, OUTLINES, SCOPES, TRANSPARENT, WRAPPERS

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

#: Characters of a stretch: longer ones are cut, groups of small ones stay below `GROUP`, and only those below `SMALL`
#: are put together with what follows.
LONGEST = 3000
GROUP = 1600
SMALL = 400
PARSE_SECONDS = 10.0
_DEEPEST = 40
_TITLES = 6


@dataclass(frozen=True)
class Stretch:
    """Lines `first` to `last` (1-based, both included). `title` is the qualified name of what is defined there."""

    first: int
    last: int
    title: str
    text: str


@dataclass
class _Span:
    """Rows (0-based, both included) between two borders. `own`: a definition, which keeps to itself unless tiny."""

    first: int
    last: int
    title: str = ""
    own: bool = False
    node: Node | None = None


def stretches(text: str, language: str) -> list[Stretch]:
    """Cut `text` (lines end in `\\n`) by the syntax of `language`; by blank lines where there is no grammar for it."""
    lines = text.split("\n")
    cutter = _Cutter(lines, language)
    root = _parse(text, language) if language in DEFINITIONS else None
    whole = _Span(0, len(lines) - 1, node=root)
    if root is not None and _trusted(root, language):
        spans = cutter.members(whole, "")
    elif language in OUTLINES:
        spans = _outline(lines, language)
    else:
        spans = [_Span(0, len(lines) - 1)]
    pieces = [piece for span in spans for piece in cutter.cut(span, 0)]
    return list(cutter.finished(cutter.grouped(pieces)))


class _Cutter:
    def __init__(self, lines: Sequence[str], language: str) -> None:
        self.lines = lines
        self.types = DEFINITIONS.get(language, frozenset())
        self.scope = SCOPES.get(language, ".")
        self.ends = [0]
        for line in lines:
            self.ends.append(self.ends[-1] + len(line) + 1)

    def size(self, first: int, last: int) -> int:
        return self.ends[last + 1] - self.ends[first]

    def members(self, span: _Span, prefix: str) -> list[_Span]:
        """What stands inside a node, as spans that fill its rows: definitions with their comments, the rest between."""
        assert span.node is not None
        borders = [_Span(span.first, span.first, prefix)]
        comment: int | None = None  # first row of the comments that may belong to the next definition
        previous = span.first - 1
        for child in _children(span.node):
            first, last = child.start_point.row, _last_row(child)
            if first <= previous or first < span.first:
                previous = max(previous, last)
                comment = None
                continue
            if comment is not None and first > previous + 2:
                comment = None
            if child.type.endswith("comment"):
                comment = first if comment is None else comment
                previous = last
                continue
            defined = self.defined(child)
            start = first if comment is None else comment
            title = prefix if defined is None else self.qualified(prefix, _name(defined))
            borders.append(_Span(start, start, title, own=defined is not None, node=defined or child))
            comment, previous = None, last
        return _filled(borders, span.last)

    def defined(self, node: Node, depth: int = 0) -> Node | None:
        """The node that defines something, itself or what it stands around; None where nothing is defined."""
        if node.type in self.types:
            # Tcl's other namespace commands look the same to the grammar.
            return None if node.type == "namespace" and _text(node).split()[1:2] != ["eval"] else node
        if node.type in WRAPPERS and depth < 3:
            inner = (self.defined(child, depth + 1) for child in node.named_children)
            return next((found for found in inner if found is not None), None)
        return None

    def qualified(self, prefix: str, name: str) -> str:
        if not name or not prefix or name.startswith("::"):
            return name or prefix
        return f"{prefix}{self.scope}{name}"

    def cut(self, span: _Span, depth: int) -> list[_Span]:
        """A span in pieces no longer than `LONGEST`, at the borders of the statements in it."""
        if self.size(span.first, span.last) <= LONGEST or span.first == span.last:
            return [span]
        node = span.node
        while node is not None and depth < _DEEPEST:
            inner = _Span(span.first, span.last, node=node)
            pieces = self.members(inner, span.title)
            if len(pieces) > 1:
                parts = [part for piece in pieces for part in self.cut(piece, depth + 1)]
                return self.grouped(parts)
            node = max(node.named_children, key=_rows, default=None)
            depth += 1
        return self.by_lines(span)

    def by_lines(self, span: _Span) -> list[_Span]:
        """A span cut where a blank line, or else an unindented one, comes nearest before the limit."""
        pieces: list[_Span] = []
        first = span.first
        while first <= span.last:
            last = first
            while last < span.last and self.size(first, last + 1) <= LONGEST:
                last += 1
            if last < span.last:
                last = self._border(first, last)
            pieces.append(_Span(first, last, span.title, own=span.own and not pieces))
            first = last + 1
        return pieces

    def _border(self, first: int, last: int) -> int:
        rows = range(last, first + (last - first) // 3, -1)
        blank = next((row for row in rows if not self.lines[row].strip()), None)
        if blank is not None:
            return blank
        flush = next((row for row in rows if self.lines[row + 1][:1].strip()), None)
        return last if flush is None else flush

    def grouped(self, spans: Sequence[_Span]) -> list[_Span]:
        """Neighbours put together: statements up to the limit, and what is too small to stand alone."""
        groups: list[list[_Span]] = []
        for span in spans:
            if groups and self._together(groups[-1], span):
                groups[-1].append(span)
            else:
                groups.append([span])
        return [_joined(group) for group in groups]

    def _together(self, group: list[_Span], span: _Span) -> bool:
        first, last = group[0].first, group[-1].last
        both = self.size(first, span.last)
        if not any(member.own for member in (*group, span)) and group[-1].title == span.title:
            return both <= LONGEST
        return both <= GROUP and (self.size(first, last) < SMALL or self.size(span.first, span.last) < SMALL)

    def finished(self, spans: Sequence[_Span]) -> Iterator[Stretch]:
        for span in spans:
            rows = [row for row in range(span.first, span.last + 1) if self.lines[row].strip()]
            if rows:
                first, last = rows[0], rows[-1]
                yield Stretch(first + 1, last + 1, span.title, "\n".join(self.lines[first : last + 1]))


def _joined(group: list[_Span]) -> _Span:
    if len(group) == 1:
        return group[0]
    titles = list(dict.fromkeys(title for span in group for title in span.title.split(", ") if title))
    if len(titles) > _TITLES:
        titles = [*titles[:_TITLES], "..."]
    return _Span(group[0].first, group[-1].last, ", ".join(titles), own=any(span.own for span in group))


def _filled(borders: list[_Span], last: int) -> list[_Span]:
    """Each span up to the next one's border. What starts in the first row takes the place of the head."""
    if len(borders) > 1 and borders[1].first == borders[0].first:
        borders = borders[1:]
    for span, following in pairwise(borders):
        span.last = following.first - 1
    borders[-1].last = last
    return borders


# by the lines' own form


def _outline(lines: Sequence[str], language: str) -> list[_Span]:
    """Sections that begin with a line of a certain form: a heading, a record, a target."""
    pattern = OUTLINES[language]
    borders = [_Span(0, 0)]
    fenced = False
    closing = ""
    for row, line in enumerate(lines):
        if language == "markdown" and line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        match = None if fenced else pattern.match(line)
        if match:
            title = " ".join(group for group in match.groups() if group).strip()
            start = row
            while start > borders[-1].first + 1 and _COMMENT.match(lines[start - 1]):
                start -= 1
            borders.append(_Span(start, start, title, own=bool(title)))
            closing = line[: len(line) - len(line.lstrip())] + "}" if language == "tcl" else ""
        elif closing and line.rstrip() == closing and row + 1 < len(lines):
            borders.append(_Span(row + 1, row + 1))
            closing = ""
    return _filled(borders, len(lines) - 1)


_COMMENT = re.compile(r"\s*(#|;|%|//|--)")


# by the syntax tree


@cache
def _parser(language: str) -> Parser:
    from tree_sitter_language_pack import SupportedLanguage, get_parser

    return get_parser(cast(SupportedLanguage, language))


def _parse(text: str, language: str) -> Node | None:
    """The tree's root, or None where parsing takes too long to be worth it."""
    data = text.encode()
    until = time.monotonic() + PARSE_SECONDS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = _parser(language).parse(
                lambda offset, _point: data[offset : offset + 65536],
                progress_callback=lambda *_state: time.monotonic() > until,
            )
    except (ValueError, Warning):
        return None
    return tree.root_node


def _trusted(root: Node, language: str) -> bool:
    """Whether the tree is worth following. Tcl's grammar tears a procedure apart at what it does not know, while the
    procedures are plain to see without it."""
    if root.type == "ERROR" or (language == "tcl" and root.has_error):
        return False
    wrong = sum(_rows(child) for child in root.children if child.type == "ERROR")
    return wrong * 2 <= _rows(root)


def _children(node: Node) -> Iterator[Node]:
    """The named children; those that only enclose others (a header guard, an extern block) give theirs instead."""
    for child in node.named_children:
        if child.type in TRANSPARENT and child.named_child_count:
            yield from _children(child)
        else:
            yield child


def _name(node: Node) -> str:
    if node.type == "namespace":  # Tcl: namespace eval NAME {...}
        return _text(node).split()[2]
    bound = node.parent
    if bound is not None and bound.type in ("binary_operator", "variable_declarator"):
        left = bound.child_by_field_name("lhs") or bound.child_by_field_name("name")
        return "" if left is None else _text(left)
    name = node.child_by_field_name("name")
    inner = node.child_by_field_name("declarator")
    while name is None and inner is not None:
        deeper = inner.child_by_field_name("declarator")
        name, inner = (inner, None) if deeper is None else (None, deeper)
    return _text(name or _first_name(node, 3) or node).split("{")[0].split("(")[0].strip()[:80]


def _first_name(node: Node, depth: int) -> Node | None:
    for child in node.named_children:
        named = child.child_by_field_name("name")
        if named is not None:
            return named
        if child.type.endswith("identifier") or child.type in ("name", "argument", "object_reference"):
            return child
        deeper = _first_name(child, depth - 1) if depth else None
        if deeper is not None:
            return deeper
    return None


def _text(node: Node) -> str:
    return " ".join((node.text or b"").decode("utf-8", "replace").split())


def _rows(node: Node) -> int:
    return node.end_point.row - node.start_point.row


def _last_row(node: Node) -> int:
    """The last row with something of the node in it: some grammars count the line end as theirs."""
    end = node.end_point
    return end.row - 1 if end.column == 0 and end.row > node.start_point.row else end.row
