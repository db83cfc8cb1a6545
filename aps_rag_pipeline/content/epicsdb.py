"""EPICS database files (`.db`, `.vdb`, `.template`) to their records, as an IOC would load them.

Macros are replaced where a value or a default is known and stay as written otherwise. What is no record (menus, record
types, break tables, paths) is passed over; an `include` is noted, since its file is read for itself. A malformed
statement costs itself: reading goes on at the next one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>(?:[\s,]+|\#[^\n]*|^%[^\n]*)+)
      | (?P<string>"(?:[^"\\\n]|\\[^\n])*")
      | (?P<mark>[(){}])
      | (?P<word>(?:[\w\-+:./\\\[\]<>;=*@&!?|^~'`]|\$\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\$\{[^{}\n]*\}|[$\#])+)""",
    re.VERBOSE | re.MULTILINE,
)
_STATEMENT = re.compile(r"^[ \t]*(?:g?record|alias|menu|recordtype|include|path|addpath)\b", re.MULTILINE)
_INNERMOST = re.compile(r"\$(?:\(([^$(){}=,]+)(?:=([^$(){}]*))?\)|\{([^$(){}=,]+)(?:=([^$(){}]*))?\})")
_UNRESOLVED = re.compile(r"\$[({]([^(){}=,]+)")
_ESCAPE = re.compile(r"\\(.)")
_MAX_NESTING = 20
_MAX_EXPANDED = 10_000
#: Stands for the `$` of a macro that has no value while the ones around it are replaced.
_KEPT = "\x00"


@dataclass
class DbRecord:
    """One record of a database. `fields` and `info` hold their texts as loaded; `line` (1-based) is where it begins."""

    type: str
    name: str
    line: int
    fields: dict[str, str] = field(default_factory=dict)
    info: dict[str, str] = field(default_factory=dict)
    aliases: list[str] = field(default_factory=list)


class DbAlias(NamedTuple):
    """A second name that stands outside of its record."""

    record: str
    alias: str
    line: int


class DbNote(NamedTuple):
    """Something passed over by design."""

    line: int
    text: str


class DbProblem(NamedTuple):
    """A statement that could not be read; `name` is the record's, where it was readable."""

    line: int
    reason: str
    name: str = ""


Statement = DbRecord | DbAlias | DbNote | DbProblem


def parse_db(text: str, macros: Mapping[str, str] | None = None) -> Iterator[Statement]:
    """The statements of a database in order. `text` has Unix line ends; `macros` are names and values."""
    parser = _Parser(text, macros or {})
    while (statement := parser.statement()) is not None:
        yield statement


def expand(text: str, macros: Mapping[str, str]) -> str:
    """Replace `$(NAME)`, `${NAME}` and `$(NAME=default)`, from the inside out; unknown ones stay as they are."""
    if "$" not in text:
        return text

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        default = match[2] if match[1] else match[4]
        found = macros.get(name.strip(), default)
        return _KEPT + match[0][1:] if found is None else found

    for _ in range(_MAX_NESTING):
        replaced = _INNERMOST.sub(value, text)
        if replaced == text or len(replaced) > _MAX_EXPANDED:
            break
        text = replaced
    return text.replace(_KEPT, "$")


def unresolved(name: str) -> list[str]:
    """The macros that still stand in a name."""
    return list(dict.fromkeys(_UNRESOLVED.findall(name)))


class _SyntaxError(Exception):
    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


class _Parser:
    def __init__(self, text: str, macros: Mapping[str, str]) -> None:
        self.text = text
        self.macros = macros
        self.position = 0
        self.ahead: _Token | None = None
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def statement(self) -> Statement | None:
        start, name = self.position, ""
        try:
            while (token := self.next()).kind != "end":
                start = token.start
                if token.kind != "word":
                    raise _SyntaxError(start, f"{token.text!r} where a statement was due")
                if token.text in ("record", "grecord"):
                    record = self.record(start)
                    name = record.name
                    self.body(record)
                    return record
                if token.text == "alias":
                    record_name, alias = self.arguments(2)
                    return DbAlias(record_name, alias, self.line(start))
                if token.text in ("include", "path", "addpath"):
                    return DbNote(self.line(start), f"{token.text} {self.value()}")
                self.pass_over(token.text, start)
        except _SyntaxError as error:
            following = _STATEMENT.search(self.text, max(error.position, start + 1))
            self.position, self.ahead = following.start() if following else len(self.text), None
            return DbProblem(self.line(error.position), str(error), name)
        return None

    def record(self, start: int) -> DbRecord:
        kind, name = self.arguments(2)
        if not name:
            raise _SyntaxError(start, "a record without a name")
        return DbRecord(kind, name, self.line(start))

    def body(self, record: DbRecord) -> None:
        if self.peek().text != "{":
            return
        self.next()
        while (token := self.next()).text != "}":
            if token.kind == "end":
                raise _SyntaxError(token.start, f"the record {record.name} is not closed before the end of the file")
            if token.text == "field":
                key, value = self.arguments(2)
                record.fields[key] = value
            elif token.text == "info":
                key, value = self.arguments(2)
                record.info[key] = value
            elif token.text == "alias":
                record.aliases += self.arguments(1)
            elif token.text == "include":
                self.value()
            else:
                raise _SyntaxError(token.start, f"{token.text!r} inside the record {record.name}")

    def arguments(self, count: int) -> list[str]:
        self.mark("(")
        values = [self.value() for _ in range(count)]
        self.mark(")")
        return values

    def value(self) -> str:
        token = self.peek()
        if token.text == "{":  # a link in JSON form is one value
            self.balanced("{", "}")
            return expand(self.text[token.start : self.position], self.macros)
        if token.kind not in ("word", "string"):
            shown = repr(token.text) if token.text else "the end of the file"
            raise _SyntaxError(token.start, f"{shown} where a value was due")
        self.next()
        text = _ESCAPE.sub(r"\1", token.text[1:-1]) if token.kind == "string" else token.text
        return expand(text, self.macros).strip()

    def pass_over(self, word: str, start: int) -> None:
        """A statement of another kind, with its arguments and its block, if it has any."""
        followed = False
        for opening, closing in (("(", ")"), ("{", "}")):
            if self.peek().text == opening:
                followed = True
                self.balanced(opening, closing)
        if not followed:
            raise _SyntaxError(start, f"{word!r} is no statement of a database")

    def balanced(self, opening: str, closing: str) -> None:
        depth = 0
        while True:
            token = self.next()
            if token.kind == "end":
                raise _SyntaxError(token.start, f"{opening!r} is not closed before the end of the file")
            if token.kind == "mark":
                depth += (token.text == opening) - (token.text == closing)
                if depth == 0:
                    return

    def mark(self, text: str) -> None:
        token = self.next()
        if token.kind != "mark" or token.text != text:
            shown = repr(token.text) if token.text else "the end of the file"
            raise _SyntaxError(token.start, f"{shown} where {text!r} was due")

    def peek(self) -> _Token:
        if self.ahead is None:
            self.ahead = self.next()
        return self.ahead

    def next(self) -> _Token:
        if (token := self.ahead) is not None:
            self.ahead = None
            return token
        while self.position < len(self.text):
            start = self.position
            match = _TOKEN.match(self.text, start)
            if match is None:
                broken = self.text[start : start + 1]
                reason = "a quote that is not closed on its line" if broken == '"' else f"{broken!r} is unexpected"
                raise _SyntaxError(start, reason)
            self.position = match.end()
            if match.lastgroup != "space":
                return _Token(match.lastgroup or "", match[0], start)
        return _Token("end", "", len(self.text))

    def line(self, position: int) -> int:
        return bisect_right(self.line_starts, position)
