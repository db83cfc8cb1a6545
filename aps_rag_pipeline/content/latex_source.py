"""LaTeX source made plain before it is parsed: no comments, shared files in, home-made macros expanded.

Verbatim text could hold anything, unbalanced braces too; so it is taken out and a mark of private characters stands for
it. Nothing is executed: macros are replaced as text, a bounded number of times.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

from aps_rag_pipeline.sources.base import UnreadableError

#: Around the number of a verbatim stretch.
OPEN, CLOSE = "\ue000", "\ue001"
PRIVATE = re.compile("[\ue000-\ue0ff]")

_VERBATIM = ("verbatim", "verbatim*", "Verbatim", "lstlisting", "alltt", "minted", "listing")
#: What is not meant for readers of the text, or says it once more in another form.
_DROPPED = ("comment", "htmlonly", "rawhtml", "filecontents", "filecontents*", "picture", "tikzpicture")
_LENGTHS = (
    "tolerance|pretolerance|hbadness|vbadness|hfuzz|vfuzz|emergencystretch|parindent|parskip|textwidth|textheight|"
    "topmargin|oddsidemargin|evensidemargin|headheight|footheight|headsep|footskip|baselineskip|itemsep|parsep|topsep"
)
_TOKEN = re.compile(
    r"(?P<block>\\begin\{(?P<env>" + "|".join(re.escape(name) for name in (*_VERBATIM, *_DROPPED)) + r")\})"
    r"|(?P<verb>\\(?:verb|lstinline)\*?(?P<mark>[^\sa-zA-Z*{\[])(?P<inside>[^\n]{0,2000}?)(?P=mark))"
    r"|(?P<url>\\(?:url|path|nolinkurl|href)\s*\{(?P<address>[^{}\n]*)\})"
    r"|(?P<length>\\(?:" + _LENGTHS + r")\s*=?\s*-?\d[\d.]*\s*(?:pt|in|cm|mm|em|ex)?(?![a-zA-Z]))"
    r"|(?P<macro>\\(?P<name>[a-zA-Z@]+)\*?)"
    r"|(?P<escaped>\\.)"
    r"|(?P<comment>%[^\n]*(?:\n[ \t]*)?)",
    re.DOTALL,
)
_DEFINING = ("newcommand", "renewcommand", "providecommand", "DeclareRobustCommand")
#: Commands that structure the text; a manual that redefines how they look does not change what they mean.
_KEPT = frozenset(
    (
        *("part", "chapter", "section", "subsection", "subsubsection", "paragraph", "item", "begin", "end", "input"),
        *("include", "title", "author", "caption", "label", "ref", "cite", "href", "url", "footnote", "maketitle"),
        *("textbf", "texttt", "emph", "verb", "baselinestretch", "arraystretch"),
    )
)
_KEPT_ENVIRONMENTS = frozenset(
    ("itemize", "enumerate", "description", "document", "tabular", "table", "figure", "equation", "center")
)
_DEEPEST = 25
_MAX_EXPANDED = 4_000_000
#: What one expansion counts for besides its text.
_EXPANSION = 40
_MAX_SEARCHED = 50_000_000


@dataclass(frozen=True)
class Macro:
    """`arguments` in all; the first is optional when it has a `default`. `end` closes an environment."""

    arguments: int
    default: str | None
    body: str
    end: str = ""


@dataclass
class Macros:
    commands: dict[str, Macro] = field(default_factory=dict)
    environments: dict[str, Macro] = field(default_factory=dict)

    def copy(self) -> Macros:
        return Macros(dict(self.commands), dict(self.environments))


@dataclass(frozen=True)
class Verbatim:
    text: str
    block: bool


@dataclass
class Plain:
    """Source made plain. `missing` are the files asked for by \\input and the like that `find` did not give."""

    text: str = ""
    verbatim: list[Verbatim] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    macros: Macros = field(default_factory=Macros)


#: Gives the text of a file that the source takes in, by the name that stands there; None where it stays out.
Find = Callable[[str], str | None]


def plain(source: str, macros: Macros, find: Find = lambda name: None) -> Plain:
    """Expand `source` with `macros` known beforehand; its own definitions are added to a copy of them.

    Raises:
        UnreadableError: its macros expand without end.
    """
    reader = _Reader(macros.copy(), find)
    text = reader.read(PRIVATE.sub(" ", source), 0)
    return Plain(text, reader.verbatim, reader.missing, reader.macros)


class _Reader:
    def __init__(self, macros: Macros, find: Find) -> None:
        self.macros = macros
        self.find = find
        self.verbatim: list[Verbatim] = []
        self.missing: list[str] = []
        self.budget = _MAX_EXPANDED
        self.searched = 0

    def read(self, text: str, depth: int) -> str:
        out: list[str] = []
        at = 0
        while found := _TOKEN.search(text, at):
            out.append(text[at : found.start()])
            at = found.end()
            kind = found.lastgroup
            if found["block"]:
                at = self._block(text, at, found["env"], out)
            elif found["verb"]:
                out.append(self._keep(found["inside"], block=False))
            elif found["url"]:
                command = found["url"].split("{")[0].strip()
                out.append(command + "{" + self._keep(found["address"], block=False) + "}")
            elif found["macro"]:
                at = self._macro(text, at, found["name"], found["macro"], depth, out)
            elif found["escaped"]:
                out.append(found["escaped"])
            else:
                assert found["comment"] is not None or found["length"] is not None, kind
        out.append(text[at:])
        return "".join(out)

    def _keep(self, text: str, block: bool) -> str:
        self.verbatim.append(Verbatim(text, block))
        return f"{OPEN}{len(self.verbatim) - 1}{CLOSE}"

    def _block(self, text: str, at: int, name: str, out: list[str]) -> int:
        end = text.find(f"\\end{{{name}}}", at)
        inside = text[at:] if end < 0 else text[at:end]
        if name in _VERBATIM:
            if name in ("lstlisting", "minted", "Verbatim", "listing"):
                inside = re.sub(r"\A(?:[ \t]*(?:\[[^\]]*\]|\{[^}]*\}))+", "", inside)
            out.append(self._keep(textwrap.dedent(inside.strip("\n").rstrip()), block=True))
        return len(text) if end < 0 else end + len(f"\\end{{{name}}}")

    def _macro(self, text: str, at: int, name: str, written: str, depth: int, out: list[str]) -> int:
        if name in _DEFINING:
            return self._define(text, at)
        if name in ("def", "gdef", "edef"):
            return self._primitive(text, at)
        if name in ("newenvironment", "renewenvironment"):
            return self._environment(text, at)
        if name in ("input", "include", "subfile", "usepackage", "RequirePackage"):
            return self._input(text, at, name, depth, out)
        if name in ("begin", "end"):
            environment, after = self._group(text, at)
            macro = self.macros.environments.get(environment or "")
            if macro is not None:
                ending = Macro(0, None, macro.end)
                return self._expand(text, after, macro if name == "begin" else ending, depth, out)
        macro = self.macros.commands.get(name)
        if macro is not None and name not in _KEPT:
            return self._expand(text, at, macro, depth, out)
        out.append(written)
        return at

    def _expand(self, text: str, at: int, macro: Macro, depth: int, out: list[str]) -> int:
        values: list[str] = []
        for number in range(macro.arguments):
            if number == 0 and macro.default is not None:
                value, at = self._group(text, at, "[", "]")
                values.append(macro.default if value is None else value)
            else:
                value, at = self._argument(text, at)
                values.append(value)
        body = re.sub(r"#([1-9])", lambda m: (values[int(m[1]) - 1 : int(m[1])] or [""])[0], macro.body)
        self.budget -= len(body) + _EXPANSION
        if self.budget < 0 or depth > _DEEPEST:
            raise UnreadableError("its macros expand without end", remedy="mend the macros that use each other")
        if not macro.arguments and re.match(r"[ \t]", text[at:]) and body[-1:].isalnum():
            body += " "  # TeX eats the blank after a macro; what people meant was one
            at += 1
        out.append(self.read(body, depth + 1))
        return at

    def _define(self, text: str, at: int) -> int:
        name, at = _name(text, at)
        count, at = self._group(text, at, "[", "]")
        default, at = self._group(text, at, "[", "]")
        body, at = self._group(text, at)
        if name and body is not None:
            self.macros.commands[name] = Macro(_count(count), default, body)
        return at

    def _primitive(self, text: str, at: int) -> int:
        found = re.compile(r"\s*\\([a-zA-Z@]+)([^{}\n]*)(?=\{)").match(text, at)
        if found is None:
            return at
        body, at = self._group(text, found.end())
        if body is not None:
            self.macros.commands[found[1]] = Macro(found[2].count("#"), None, body)
        return at

    def _environment(self, text: str, at: int) -> int:
        name, at = self._group(text, at)
        count, at = self._group(text, at, "[", "]")
        default, at = self._group(text, at, "[", "]")
        begin, at = self._group(text, at)
        end, at = self._group(text, at)
        if name and name not in _KEPT_ENVIRONMENTS and begin is not None and end is not None:
            self.macros.environments[name] = Macro(_count(count), default, begin, end)
        return at

    def _input(self, text: str, at: int, command: str, depth: int, out: list[str]) -> int:
        _, at = self._group(text, at, "[", "]")
        name, at = self._group(text, at)
        if name is None:
            bare = re.compile(r"[ \t]+([\w./-]+)").match(text, at)
            if bare is None:
                return at
            name, at = bare[1], bare.end()
        package = command in ("usepackage", "RequirePackage")
        for each in name.split(",") if package else [name]:
            wanted = each.strip() + (".sty" if package else "")
            inside = self.find(wanted) if depth < _DEEPEST else None
            if inside is None:
                self.missing += [] if package else [wanted]
                continue
            self.budget -= len(inside)
            if self.budget < 0:
                raise UnreadableError("it takes in files without end", remedy="mend the files that take in each other")
            read = self.read(PRIVATE.sub(" ", inside), depth + 1)
            out.append("" if package else read)
        return at

    def _argument(self, text: str, at: int) -> tuple[str, int]:
        """A macro's argument: a group, or the next single thing."""
        value, after = self._group(text, at)
        if value is not None:
            return value, after
        found = re.compile(r"\s*(\\[a-zA-Z]+|\\.|\S)").match(text, at)
        return (found[1], found.end()) if found else ("", at)

    def _group(self, text: str, at: int, opening: str = "{", closing: str = "}") -> tuple[str | None, int]:
        """What stands in the braces or brackets that come next, and where they end; None and `at` where none do."""
        start = at
        while start < len(text) and text[start].isspace():
            start += 1
        if text[start : start + 1] != opening or "\n\n" in text[at:start]:
            return None, at
        depth = braces = 0
        for found in (_BRACES if opening == "{" else _BRACKETS).finditer(text, start):
            token = found[0]
            if token in "{}" and opening == "[":
                braces += 1 if token == "{" else -1
            elif token == opening and not braces:
                depth += 1
            elif token == closing and not braces:
                depth -= 1
                if depth == 0:
                    return text[start + 1 : found.start()], found.end()
        self.searched += len(text) - start
        if self.searched > _MAX_SEARCHED:
            raise UnreadableError("too many braces are never closed", remedy="mend the braces")
        return None, at


def _count(text: str | None) -> int:
    return min(9, int(text)) if text is not None and text.strip().isdigit() else 0


def _name(text: str, at: int) -> tuple[str, int]:
    found = re.compile(r"\s*\{?\s*\\([a-zA-Z@]+|.)\s*\}?").match(text, at)
    return (found[1], found.end()) if found else ("", at)


_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_BRACKETS = re.compile(r"\\.|[{}\[\]]", re.DOTALL)
