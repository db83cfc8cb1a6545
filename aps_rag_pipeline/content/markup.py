"""HTML to readable blocks of text, and what Markdown text links to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urljoin

if TYPE_CHECKING:
    from bs4 import Tag
    from bs4.element import PageElement

#: Deeper nesting than any page has; below it only the bare text is kept.
_MAX_DEPTH = 150
_MAX_SPAN = 60
_DROPPED = frozenset(("script", "style", "template", "head", "noscript", "svg", "iframe", "object", "canvas", "math"))
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LISTS = frozenset(("ul", "ol", "menu", "dir"))
# fmt: off
_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "div", "dl",
    "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "html", "li", "main", "nav",
    "p", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", *_HEADINGS, *_LISTS,
))
# fmt: on
_SPACES = re.compile(r"[ \t\r\n\f\xa0]+")
_SPACES_AT_BREAK = re.compile(r" ?\n ?")

BlockKind = Literal["heading", "prose", "table", "code"]


class Block(NamedTuple):
    """A stretch of a page. `level` is 1 to 6 for headings; `title` is the caption of a table."""

    kind: BlockKind
    text: str
    level: int = 0
    title: str = ""


class MarkdownLink(NamedTuple):
    """A link or picture in Markdown text; `start` and `end` bound it there."""

    text: str
    target: str
    image: bool
    start: int
    end: int


def html_to_text(html: str, base_url: str = "") -> str:
    """Readable text of a page or fragment.

    Paragraphs are parted by blank lines, headings begin with `#`, list items with `- ` or their number, tables become
    pipe tables, `<pre>` becomes fenced code and links become `text (url)`. Scripts, styles and comments are left out.
    """
    return blocks_to_text(html_blocks(html, base_url))


def html_blocks(html: str, base_url: str = "") -> list[Block]:
    """The blocks of a page or fragment in reading order. Relative links are joined to `base_url` where one is given."""
    return tree_blocks(parse_html(html), base_url)


def parse_html(html: str) -> Tag:
    """The tree of a page or fragment, however broken, for callers that look into it before reading its text."""
    from bs4 import BeautifulSoup

    return BeautifulSoup(html, "lxml")


def tree_blocks(tree: Tag, base_url: str = "") -> list[Block]:
    """Like :func:`html_blocks`, of a parsed tree."""
    return [block for block in _blocks(tree, base_url, 0) if block.text.strip()]


def blocks_to_text(blocks: Iterable[Block]) -> str:
    """Blocks as one text, in the form that :func:`html_to_text` describes."""
    return "\n\n".join(_written(block) for block in blocks)


def pipe_table(rows: Iterable[Iterable[str]]) -> str:
    """A GitHub-style table, the first row its header. Rows of unequal length are filled up; no rows give no text."""
    cells = [[_cell(value) for value in row] for row in rows]
    cells = [row for row in cells if any(row)]
    width = max((len(row) for row in cells), default=0)
    lines = ["| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in cells]
    return "\n".join([*lines[:1], "|" + " --- |" * width, *lines[1:]]) if lines else ""


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_TABLE_RULE = re.compile(r" {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")


def markdown_blocks(text: str) -> list[Block]:
    """Prose, fenced code and pipe tables of Markdown text in reading order; headings stay in the prose as written."""
    blocks: list[Block] = []
    prose: list[str] = []

    def close() -> None:
        blocks.append(Block("prose", "\n".join(prose).strip("\n")))
        prose.clear()

    lines = text.split("\n")
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence:
            close()
            end = next(
                (n for n in range(at + 1, len(lines)) if lines[n].strip().startswith(fence.group(1))), len(lines)
            )
            blocks.append(Block("code", "\n".join(lines[at + 1 : end])))
            at = end + 1
        elif "|" in lines[at] and at + 1 < len(lines) and "|" in lines[at + 1] and _TABLE_RULE.fullmatch(lines[at + 1]):
            close()
            end = next((n for n in range(at + 2, len(lines)) if "|" not in lines[n]), len(lines))
            blocks.append(Block("table", "\n".join(line.strip() for line in lines[at:end])))
            at = end
        else:
            prose.append(lines[at])
            at += 1
    close()
    return [block for block in blocks if block.text.strip()]


_MARKDOWN_LINK = re.compile(r"(!?)\[((?:[^\[\]]|!?\[[^\[\]]*\](?:\([^()\n]*\))?)*)\]\(((?:[^()\n]|\([^()\n]*\))*)\)")
_MARKDOWN_TARGET = re.compile(r"<([^<>]*)>|(.*?)(?:\s+(?:\"[^\"]*\"|'[^']*'))?$", re.DOTALL)
_BARE_URL = re.compile(r"https?://[^\s<>\"'`|\\^{}\[\]]+")


def markdown_links(text: str) -> list[MarkdownLink]:
    """Links and pictures of Markdown text in order of their start, a picture inside a link as well as that link."""
    found: list[MarkdownLink] = []
    for match in _MARKDOWN_LINK.finditer(text):
        mark, label, inside = match.groups()
        shift = match.start(2)
        nested = [link._replace(start=link.start + shift, end=link.end + shift) for link in _in(label)]
        target = _target(inside)
        words = label if not nested else nested[0].text
        if target:
            found.append(MarkdownLink(words.strip(), target, bool(mark), match.start(), match.end()))
        found.extend(nested)
    return found


def bare_urls(text: str) -> list[str]:
    """http and https addresses of plain text, each once, without the punctuation of the sentence around them."""
    found: dict[str, None] = {}
    for match in _BARE_URL.finditer(text):
        url = match.group().rstrip(".,;:!?*_~")
        while url.endswith(")") and url.count("(") < url.count(")"):
            url = url[:-1].rstrip(".,;:!?")
        found[url] = None
    return list(found)


def _in(label: str) -> list[MarkdownLink]:
    return markdown_links(label) if "](" in label else []


def _target(inside: str) -> str:
    match = _MARKDOWN_TARGET.match(inside.strip())
    return (match.group(1) or match.group(2) or "").strip() if match else ""


def _written(block: Block) -> str:
    if block.kind == "heading":
        return f"{'#' * block.level} {block.text}"
    if block.kind == "code":
        fence = "````" if "```" in block.text else "```"
        return f"{fence}\n{block.text}\n{fence}"
    return f"{block.title}\n\n{block.text}" if block.title else block.text


def _blocks(node: Tag, base: str, depth: int) -> Iterator[Block]:
    """Blocks among the children of `node`; what stands between them is gathered into paragraphs."""
    if depth > _MAX_DEPTH:
        yield Block("prose", _tidy(node.get_text(" ")))
        return
    run: list[str] = []
    for child in node.children:
        if _is_block(child):
            yield Block("prose", _tidy("".join(run)))
            run = []
            yield from _block(child, base, depth + 1)
        else:
            run.append(_inline(child, base, depth + 1))
    yield Block("prose", _tidy("".join(run)))


def _is_block(node: PageElement) -> bool:
    """Whether a node breaks the line: a block element, or an inline one (a link, a span) around such."""
    from bs4 import Tag

    if not isinstance(node, Tag) or node.name in _DROPPED:
        return False
    return node.name in _BLOCKS or any(isinstance(inner, Tag) and inner.name in _BLOCKS for inner in node.descendants)


def _block(node: PageElement, base: str, depth: int) -> Iterator[Block]:
    from bs4 import Tag

    assert isinstance(node, Tag)
    name = node.name
    if name in _HEADINGS:
        yield Block("heading", _tidy(_inline(node, base, depth)).replace("\n", " "), _HEADINGS[name])
    elif name == "pre":
        for line_break in node.find_all("br"):
            line_break.replace_with("\n")
        yield Block("code", node.get_text().replace("\r\n", "\n").strip("\n"))
    elif name in _LISTS:
        yield Block("prose", "\n".join(_items(node, base, depth)))
    elif name == "table":
        yield from _table(node, base, depth)
    elif name in ("blockquote", "dd"):
        margin = "> " if name == "blockquote" else "  "
        for block in _blocks(node, base, depth):
            yield block._replace(text=_indent(block.text, margin)) if block.kind == "prose" and block.text else block
    else:
        yield from _blocks(node, base, depth)


def _items(node: Tag, base: str, depth: int) -> Iterator[str]:
    from bs4 import Tag

    number = 0
    for child in node.children:
        if not isinstance(child, Tag) or child.name in _DROPPED:
            continue
        number += 1
        mark = f"{number}. " if node.name == "ol" else "- "
        if child.name in _LISTS:  # a list directly inside a list, as editors write it
            number -= 1
            yield from (f"  {line}" for line in _items(child, base, depth + 1))
            continue
        text = "\n".join(_written(block) for block in _blocks(child, base, depth + 1) if block.text)
        if text:
            yield mark + _indent(text, " " * len(mark)).lstrip(" ")


def _table(node: Tag, base: str, depth: int) -> Iterator[Block]:
    """A data table as one block; a table of one cell or around other tables is only a frame around its content."""
    cells = [cell for row in _rows(node) for cell in row]
    if len(cells) <= 1 or node.find("table"):
        for cell in cells:
            yield from _blocks(cell, base, depth)
        return
    caption = node.find("caption")
    title = _tidy(_inline(caption, base, depth)).replace("\n", " ") if caption else ""
    yield Block("table", pipe_table(_grid(node, base, depth)), title=title)


def _rows(table: Tag) -> Iterator[list[Tag]]:
    for row in table.find_all("tr"):
        if row.find_parent("table") is table:
            yield row.find_all(["td", "th"], recursive=False)


def _grid(table: Tag, base: str, depth: int) -> list[list[str]]:
    """Cell texts with spans laid out: a cell that spans rows is said in each of them, so that a row stands alone."""
    grid: list[list[str]] = []
    hanging: dict[int, tuple[int, str]] = {}
    for row in _rows(table):
        line: list[str] = []

        def hang(line: list[str] = line) -> None:
            while len(line) in hanging:
                left, text = hanging.pop(len(line))
                if left > 1:
                    hanging[len(line)] = (left - 1, text)
                line.append(text)

        for cell in row:
            hang()
            text = " ".join(block.text for block in _blocks(cell, base, depth + 1) if block.text)
            down = _span(cell, "rowspan")
            for column in range(_span(cell, "colspan")):
                if down > 1:
                    hanging[len(line)] = (down - 1, text)
                line.append(text if column == 0 else "")
        hang()
        grid.append(line)
    return grid


def _span(cell: Tag, name: str) -> int:
    value = str(cell.get(name, "1")).strip()
    return max(1, min(_MAX_SPAN, int(value))) if value.isascii() and value.isdigit() else 1


def _inline(node: PageElement, base: str, depth: int) -> str:
    from bs4 import Tag
    from bs4.element import CData, NavigableString

    if isinstance(node, NavigableString):
        # Comments, doctypes and processing instructions are subclasses; they are no text.
        return _SPACES.sub(" ", node) if type(node) in (NavigableString, CData) else ""
    if not isinstance(node, Tag) or node.name in _DROPPED:
        return ""
    if node.name == "br":
        return "\n"
    if node.name in ("img", "emoji"):
        return str(node.get("alt", ""))
    if depth > _MAX_DEPTH:
        return node.get_text(" ")
    text = "".join(_inline(child, base, depth + 1) for child in node.children)
    return _link(text, str(node.get("href", "")), base) if node.name == "a" else text


def _link(text: str, href: str, base: str) -> str:
    target = href.strip()
    if not target or target.startswith(("#", "javascript:", "data:")):
        return text
    if base:
        with suppress(ValueError):  # no address at all: it is shown as it is written
            target = urljoin(base, target)
    shown = text.strip()
    if not shown:
        return target
    said = target.removeprefix("mailto:").rstrip("/")
    return text if shown.rstrip("/") in (said, target) else f"{text.rstrip()} ({target})"


def _tidy(text: str) -> str:
    return _SPACES_AT_BREAK.sub("\n", re.sub(r"[ \xa0]+", " ", text)).strip()


def _cell(text: str) -> str:
    return _SPACES.sub(" ", text).strip().replace("|", "\\|")


def _indent(text: str, margin: str) -> str:
    return "\n".join(f"{margin}{line}".rstrip() for line in text.split("\n"))
