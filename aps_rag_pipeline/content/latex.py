"""LaTeX manuals to parts: sections with titles, lists and switches as text, examples as code, tables as tables.

`latex_source` makes the source plain, pylatexenc parses it, and the text it gives carries marks (private characters) of
what pylatexenc has no form for; the marks are read back into parts here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.content.latex_names import (
    ARGUMENTS,
    ARRANGING,
    ENVIRONMENT_ARGUMENTS,
    LEVELS,
    LISTS,
    SILENT,
    SYMBOLS,
    TABLES,
)
from aps_rag_pipeline.content.latex_source import CLOSE, OPEN, Find, Macros, Plain, plain
from aps_rag_pipeline.content.markup import pipe_table
from aps_rag_pipeline.content.sections import Sections
from aps_rag_pipeline.records import Part

if TYPE_CHECKING:
    from pylatexenc.latexwalker import LatexNode

#: Marks in the linear text: heading, table, bold, item, line break, end of a list.
_HEAD, _TABLE, _BOLD, _UNBOLD, _ITEM, _BREAK, _LIST_END, _END = (chr(0xE010 + n) for n in range(8))
#: Level of what stands in an environment with a name of its own (`\begin{sddsprog}{plot}`), and of `\item {\bf x:}`.
_NAMED, _LABELLED = 2, 8
#: A line in the middle in large or bold type is a heading.
_CENTRED = re.compile(f"\\s*{_BOLD}([^{_BOLD}{_BREAK}{_ITEM}]{{1,80}}){_UNBOLD}\\s*")


@dataclass
class Manual:
    """A manual as read. `missing` are files that it takes in and that were not given to it."""

    title: str = ""
    author: str = ""
    parts: tuple[Part, ...] = ()
    urls: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def read_manual(source: str, macros: Macros | None = None, find: Find = lambda name: None) -> Manual:
    """Read LaTeX source, a whole document or a fragment of one.

    Raises:
        UnreadableError: its macros or inputs expand without end.
    """
    made = plain(source, macros or Macros(), find)
    before, begun, after = made.text.partition(r"\begin{document}")
    body = after.partition(r"\end{document}")[0] if begun else made.text
    writer = _Writer(made)
    writer.named("title", before if begun else "")
    writer.named("author", before if begun else "")
    linear = writer.text(body)
    parts = _parts(linear, made)
    title = writer.title or next((part.locator.split(" > ")[0] for part in parts if part.locator), "")
    author = writer.author or next((p.text for p in parts if p.title.lower() in ("author", "authors")), "")
    return Manual(" ".join(title.split()), _names(author), parts, writer.urls, tuple(made.missing))


_INSTITUTE = re.compile(r"^\s*[A-Z]{2}[A-Z/ -]*$|\b(?:Laboratory|Source|University|Institute|Division|Group)\b")


def _names(text: str) -> str:
    """People's names without their institutes, on the lines below or behind a comma."""
    names = " ".join(text.split("\n")[0].split())[:200].rstrip(" .,").split(",")
    return ", ".join(name.strip() for name in names if not _INSTITUTE.search(name))


# source to linear text


@cache
def _context() -> Any:
    from pylatexenc.latexwalker import get_default_latex_context_db
    from pylatexenc.macrospec import EnvironmentSpec, MacroSpec

    # It warns of every formula that it cannot put into words; those are given as they are written.
    logging.getLogger("pylatexenc.latex2text").setLevel(logging.ERROR)
    context = get_default_latex_context_db()
    context.add_context_category(
        "manuals",
        prepend=True,
        macros=[MacroSpec(name, arguments) for name, arguments in ARGUMENTS.items()],
        environments=[EnvironmentSpec(name, arguments) for name, arguments in ENVIRONMENT_ARGUMENTS.items()],
    )
    return context


#: Plain words, with nothing in them that LaTeX could mean something by.
_WORDS = re.compile(r"[A-Za-z0-9.,;:()/=+*|@](?:[A-Za-z0-9.,;:()/=+*|@]|[ \n](?=[A-Za-z0-9(])|-(?=[A-Za-z0-9]))*")


@cache
def _walker_class() -> Any:
    from pylatexenc.latexwalker import LatexToken, LatexWalker

    class Walker(LatexWalker):  # type: ignore[misc]
        """Takes words as one token: pylatexenc takes characters one by one, which is five times slower."""

        def get_token(
            self, pos: int, include_brace_chars: Any = None, environments: bool = True, **more: Any
        ) -> LatexToken:
            if environments and more.get("parsing_state") is not None:
                words = _WORDS.match(self.s, pos)
                if words:
                    return LatexToken(tok="char", arg=words[0], pos=pos, len=len(words[0]), pre_space="")
            return super().get_token(pos, include_brace_chars=include_brace_chars, environments=environments, **more)

    return Walker


class _Writer:
    """Turns plain source into linear text with marks."""

    def __init__(self, made: Plain) -> None:
        from pylatexenc.latex2text import LatexNodes2Text

        self.made = made
        self.title = ""
        self.author = ""
        self.urls: dict[str, str] = {}
        self.lists: list[str] = []
        self.counts: list[int] = []
        self.caption = ""
        self.math = LatexNodes2Text(math_mode="text", strict_latex_spaces=False)
        self.macros: dict[str, Callable[[Any], str]] = {
            **{name: self._heading for name in LEVELS},
            **{name: self._bold for name in ("textbf", "textsc", "strong")},
            **{name: self._reference for name in ("ref", "pageref", "eqref", "cite")},
            **{name: lambda node: _BREAK for name in ("\\", "newline", "linebreak", "par", "cr")},
            "item": self._item,
            "bibitem": lambda node: f"{_ITEM}0[{self._argument(node, -1)}] ",
            "href": self._link,
            "url": lambda node: self._argument(node, -1),
            "footnote": lambda node: f" ({self._argument(node, -1)})",
            "caption": lambda node: self._argument(node, -1) + _BREAK,
            "multicolumn": lambda node: self._argument(node, -1),
            "hyperref": lambda node: self._argument(node, -1),
            "textcolor": lambda node: self._argument(node, -1),
        }

    def text(self, source: str) -> str:
        walker = _walker_class()(source, latex_context=_context(), tolerant_parsing=True)
        return self.nodes(walker.get_latex_nodes()[0])

    def named(self, command: str, preamble: str) -> None:
        """Take \\title or \\author from a preamble; in the body they are taken where they come along."""
        found = re.search(rf"\\{command}\s*(?:\[[^\]]*\])?\s*\{{", preamble)
        if found:
            self.text(preamble[found.start() :])

    def nodes(self, nodes: Iterable[LatexNode | None] | None) -> str:
        return "".join(self.node(node) for node in nodes or () if node is not None)

    def node(self, node: LatexNode) -> str:
        from pylatexenc import latexwalker as walker

        if node.isNodeType(walker.LatexCharsNode):
            return str(node.chars)
        if node.isNodeType(walker.LatexGroupNode):
            return self._group(node)
        if node.isNodeType(walker.LatexMacroNode):
            return self._macro(node)
        if node.isNodeType(walker.LatexEnvironmentNode):
            return self._environment(node)
        if node.isNodeType(walker.LatexMathNode):
            text = self._symbols(node)
            return f"{_BREAK}{text}{_BREAK}" if node.displaytype == "display" else text
        if node.isNodeType(walker.LatexSpecialsNode):
            return {"~": " ", "``": '"', "''": '"', "--": "--", "---": "---"}.get(
                node.specials_chars, self._symbols(node)
            )
        return ""

    def _symbols(self, node: LatexNode) -> str:
        """What pylatexenc makes of accents, symbols and formulas; their source where it makes nothing of them."""
        try:
            return " ".join(self.math.node_to_text(node).split(" "))
        except (IndexError, TypeError, AttributeError, ValueError, KeyError):
            return str(node.latex_verbatim())

    def _argument(self, node: LatexNode, number: int) -> str:
        arguments = [each for each in (node.nodeargd.argnlist if node.nodeargd else None) or []]
        chosen = arguments[number] if arguments else None
        return "" if chosen is None else self._inside(chosen)

    def _inside(self, node: LatexNode) -> str:
        from pylatexenc.latexwalker import LatexGroupNode

        return self.nodes(node.nodelist) if node.isNodeType(LatexGroupNode) else self.node(node)

    def _group(self, node: LatexNode) -> str:
        text = self.nodes(node.nodelist)
        first = next(iter(node.nodelist), None)
        bold = getattr(first, "macroname", "") in ("bf", "bfseries", "sc", "large", "Large", "LARGE", "huge", "Huge")
        return f"{_BOLD}{text}{_UNBOLD}" if bold else text

    def _macro(self, node: LatexNode) -> str:
        name = node.macroname
        if name in ("title", "author"):
            if not getattr(self, name):
                setattr(self, name, _settled(self._argument(node, -1), self.made))
            return ""
        if name in SILENT or name in SYMBOLS:
            return SYMBOLS.get(name, "")
        handler = self.macros.get(name)
        if handler is not None:
            return handler(node)
        arguments = [each for each in (node.nodeargd.argnlist if node.nodeargd else None) or [] if each is not None]
        symbol = self._symbols(node)
        if arguments and (len(name) > 1 or not symbol):
            return "".join(self._inside(each) for each in arguments)
        return symbol + (" " if symbol and node.macro_post_space and name.isalpha() else "")

    def _heading(self, node: LatexNode) -> str:
        return f"{_HEAD}{LEVELS[node.macroname]}{self._argument(node, -1)}{_END}"

    def _bold(self, node: LatexNode) -> str:
        return f"{_BOLD}{self._argument(node, -1)}{_UNBOLD}"

    def _reference(self, node: LatexNode) -> str:
        target = self._argument(node, -1)
        return f"[{target}]" if node.macroname == "cite" else target

    def _link(self, node: LatexNode) -> str:
        url, text = (_settled(self._argument(node, number), self.made) for number in (0, 1))
        if url.startswith(("http://", "https://", "ftp://")):
            self.urls[url] = text
        return text if text == url or not url else f"{text} ({url})"

    def _item(self, node: LatexNode) -> str:
        depth = len(self.lists)
        lead = "- "
        if self.lists and self.lists[-1] == "enumerate":
            self.counts[-1] += 1
            lead = f"{self.counts[-1]}. "
        label = self._argument(node, 0).strip()
        if label:
            label += "" if label[-1:] in ":.)-" else ":"
        return f"{_ITEM}{min(depth, 9)}{lead}{label} "

    def _environment(self, node: LatexNode) -> str:
        name = node.environmentname
        if name in TABLES:
            return self._table(node)
        if name.rstrip("*") == "table":
            return self._captioned(node)
        if name in ("abstract", "thebibliography"):
            title = "Abstract" if name == "abstract" else "References"
            return f"{_HEAD}{LEVELS['section']}{title}{_END}{self.nodes(node.nodelist)}"
        if name in LISTS:
            self.lists.append(name)
            self.counts.append(0)
            text = self.nodes(node.nodelist)
            self.lists.pop()
            self.counts.pop()
            return f"{text}{_LIST_END}{min(len(self.lists) + 1, 9)}{_BREAK}"
        if name.rstrip("*") in ("equation", "eqnarray", "align", "displaymath", "math", "gather", "array"):
            return f"{_BREAK}{self._symbols(node)}{_BREAK}"
        first = next(iter(node.nodelist), None)
        if first is not None and name not in ARRANGING and getattr(first, "delimiters", None) == ("{", "}"):
            title = self.nodes(first.nodelist)
            return f"{_HEAD}{_NAMED}{title}{_END}{self.nodes(node.nodelist[1:])}{_LIST_END}0"
        text = self.nodes(node.nodelist)
        centred = _CENTRED.fullmatch(text) if name == "center" else None
        return f"{_HEAD}{_LABELLED + 1}{centred[1]}{_END}" if centred else f"\n\n{text}\n\n"

    def _captioned(self, node: LatexNode) -> str:
        captions = [each for each in node.nodelist if getattr(each, "macroname", "") == "caption"]
        self.caption = " ".join(self._argument(each, -1) for each in captions)
        text = self.nodes(each for each in node.nodelist if each not in captions)
        caption, self.caption = self.caption, ""
        return text if _TABLE in text else f"{text}\n\n{caption}\n\n"

    def _table(self, node: LatexNode) -> str:
        rows: list[list[str]] = [[""]]
        for each in node.nodelist:
            if getattr(each, "macroname", "") in ("\\", "tabularnewline", "cr"):
                rows.append([""])
            elif getattr(each, "specials_chars", "") == "&":
                rows[-1].append("")
            elif getattr(each, "macroname", "") == "caption":
                self.caption = self._argument(each, -1)
            else:
                rows[-1][-1] += self.node(each)
        cells = [[_settled(cell, self.made).replace("\n", " ") for cell in row] for row in rows]
        caption, self.caption = self.caption, ""
        return f"{_TABLE}{_settled(caption, self.made)}{_END}{pipe_table(cells)}{_END}"


# linear text to parts

_PIECES = re.compile(
    f"{_HEAD}(?P<level>\\d)(?P<title>[^{_END}]*){_END}"
    f"|{_TABLE}(?P<caption>[^{_END}]*){_END}(?P<rows>[^{_END}]*){_END}"
    f"|{_LIST_END}(?P<depth>\\d)"
    f"|{OPEN}(?P<verbatim>\\d+){CLOSE}"
    f"|{_ITEM}(?P<item>[01])-\\s*{_BOLD}(?P<label>[^{_UNBOLD}{_ITEM}]{{1,80}}){_UNBOLD}(?P<colon>\\s*:)?"
)


def _parts(linear: str, made: Plain) -> tuple[Part, ...]:
    sections = Sections()
    pending: list[str] = []
    at = 0

    def close() -> None:
        sections.prose(_settled("".join(pending), made))
        pending.clear()

    for found in _PIECES.finditer(linear):
        pending.append(linear[at : found.start()])
        at = found.end()
        label = _label(found, sections, made)
        if found["level"]:
            close()
            sections.heading(int(found["level"]), _settled(found["title"], made))
        elif found["rows"] is not None:
            close()
            sections.table(found["rows"], found["caption"])
        elif found["verbatim"] and made.verbatim[int(found["verbatim"])].block:
            close()
            sections.code(made.verbatim[int(found["verbatim"])].text)
        elif found["depth"] == "0" or (found["depth"] == "1" and _LABELLED + 1 in sections.levels):
            close()
            sections.close(_NAMED if found["depth"] == "0" else _LABELLED + 1)
        elif label:
            close()
            sections.heading(_LABELLED + int(found["item"]), label)
        else:
            pending.append("\n\n" if found["depth"] == "1" else found[0])
    pending.append(linear[at:])
    close()
    return sections.finish()


def _label(found: re.Match[str], sections: Sections, made: Plain) -> str:
    """The title that an item makes by beginning with `{\\bf description:}`; "" where it is an item like others.

    In a list of its own such items are sections only where the manual is not divided by outer ones already.
    """
    if not found["label"] or (found["item"] == "1" and _LABELLED in sections.levels):
        return ""
    title = _settled(found["label"], made)
    return title.rstrip(": ") if title.endswith(":") or found["colon"] else ""


#: Written inside \\verb by mistake, where it would be printed as it stands.
_FONT = re.compile(r"\\(?:emph|textit|textbf|texttt)\{([^{}]*)\}")
_MARKS = re.compile(f"[{_HEAD}-{_END}{OPEN}{CLOSE}]")


def _settled(text: str, made: Plain) -> str:
    """Linear text as people read it: lines joined to paragraphs, items on their own lines, verbatim words put back."""
    text = re.sub(f"[{_BOLD}{_UNBOLD}{_TABLE}]", "", text)
    text = re.sub(r"[ \t]*\n[ \t]*\n\s*", "\ue020", text)
    text = re.sub(r"[ \t\n\xa0]+", " ", text)
    text = re.sub(f" ?{_LIST_END}\\d ?", _BREAK, text)
    text = re.sub(f" ?\ue020?{_ITEM}(\\d) ?", lambda m: "\n" + "  " * max(0, int(m[1]) - 1), text)
    text = re.sub(f" ?{_BREAK} ?", "\n", text)
    text = re.sub(" ?\ue020 ?", "\n\n", text)
    text = re.sub(f"{OPEN}(\\d+){CLOSE}", lambda m: _FONT.sub(r"\1", made.verbatim[int(m[1])].text), text)
    return re.sub(r"\n{3,}", "\n\n", _MARKS.sub("", text)).strip()
