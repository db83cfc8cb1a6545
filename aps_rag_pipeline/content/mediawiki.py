"""MediaWiki markup to HTML, on the syntax tree of `mwparserfromhell`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import Any

from aps_rag_pipeline.content.wikilines import Held, Item, WikiText, is_held, nested_list, plain_html, verbatim

_REDIRECT = re.compile(r"\A\s*#(?:REDIRECT|WEITERLEITUNG|REDIRECTION)\s*:?\s*\[\[([^\]|]+)", re.IGNORECASE)
_FILES = ("file", "image", "datei", "bild", "media")
_CATEGORIES = ("category", "kategorie", "catégorie")
_FRAME = re.compile(
    r"thumb(?:nail)?|frame(?:d|less)?|border|left|right|center|none|upright.*|baseline|sub|super|top|middle|bottom"
    r"|text-\w+|\d*x?\d*px|(?:alt|link|lang|page|class|thumb)=.*",
    re.IGNORECASE | re.DOTALL,
)
#: List marks beyond any depth: each would be a node of the tree.
_DEEP = re.compile(r"^([*#:;]{12})[*#:;]+", re.MULTILINE)
_SWITCH = re.compile(r"__[A-Z]+__")
_LIST_MARKS = {"*": "ul", "#": "ol", ":": "ul", ";": "ul"}
_LISTED = re.compile(r"^([*#:;]+)\s*(.*)$")
_VERBATIM_TAGS = frozenset(("pre", "syntaxhighlight", "source", "math", "graph", "mermaid", "templatedata"))
_DROPPED_TAGS = frozenset(("references", "noinclude", "templatestyles", "indicator"))
_TABLE_ROWS = 3
_MAX_DEPTH = 40
_MAX_PAGE = 500_000
#: The parser looks for the end of each opening anew, over the whole page: thousands that never end would take hours.
_MAX_UNCLOSED = 40
_BRACKETS = re.compile(r"\{\{|\}\}|\[\[|\]\]|\[(?=\w+:|//)|\]|\{\||\|\}(?!\})|<!--|-->|</?[A-Za-z]+|/?>")
_CLOSES = {"}}": "{{", "]]": "[[", "]": "[", "|}": "{|", "-->": "<!--"}
_UNPAIRED_TAGS = frozenset(("<br", "<hr", "<img", "<li", "<dt", "<dd", "<p", "<tr", "<td", "<th", "<wbr"))


def mediawiki_to_html(text: str) -> WikiText:
    """A page as HTML, its categories, and where it redirects to. Templates are kept as their name and values."""
    import mwparserfromhell

    if len(text) > _MAX_PAGE or _unclosed(text) > _MAX_UNCLOSED:
        return WikiText(plain_html(text))
    redirect = _REDIRECT.match(text)
    reader = _Reader()
    html = reader.page(mwparserfromhell.parse(_DEEP.sub(r"\1", _SWITCH.sub("", text))))
    return WikiText(html, list(dict.fromkeys(reader.categories)), redirect[1].strip() if redirect else "")


def _unclosed(text: str) -> int:
    """How many brackets or tags of one kind are open at once, at most."""
    opened: Counter[str] = Counter()
    most = 0
    for name, step in _openings(text):
        opened[name] = max(0, opened[name] + step)
        most = max(most, opened[name])
    return most


def _openings(text: str) -> Iterator[tuple[str, int]]:
    """What opens (1) and closes (-1): brackets by their characters, `<` for a tag itself, `<name` for its content."""
    tag = ""
    for match in _BRACKETS.finditer(text):
        token = match[0].lower()
        if token in _CLOSES:
            yield _CLOSES[token], -1
        elif token in (">", "/>"):
            yield "<", -1
            if token == "/>":
                yield tag, -1
        elif token.startswith("</"):
            yield f"<{token[2:]}", -1
        else:
            yield token, 0 if token in _UNPAIRED_TAGS else 1
            if token[0] == "<" and token != "<!--":
                tag = token
                yield "<", 1


class _Reader:
    def __init__(self) -> None:
        self.held = Held()
        self.categories: list[str] = []

    def page(self, code: Any) -> str:
        return self.held.release(self._blocks(self._inline(code, 0)))

    def _blocks(self, text: str) -> str:
        """Block HTML of what `_inline` gives, held pieces not yet released."""
        out: list[str] = []
        items: list[Item] = []
        paragraph: list[str] = []
        indented: list[str] = []

        def finish() -> None:
            if items:
                out.append(nested_list(items))
            if paragraph:
                out.append(f"<p>{chr(10).join(paragraph)}</p>")
            if indented:
                out.append("<pre>" + "\n".join(indented) + "</pre>")
            items.clear()
            paragraph.clear()
            indented.clear()

        for line in text.split("\n"):
            listed = _LISTED.match(line)
            collected: list[Any] = items if listed else indented if line.startswith(" ") and line.strip() else paragraph
            if not line.strip() or is_held(line) or not collected:
                finish()
            if listed:
                items.append(Item(len(listed[1]), _LIST_MARKS[listed[1][-1]], listed[2]))
            elif is_held(line):
                out.append(line)
            elif collected is indented:
                indented.append(line[1:])
            elif line.strip():
                paragraph.append(line)
        finish()
        return "\n".join(out)

    def _inline(self, code: Any, depth: int) -> str:
        """Text of nodes: escaped, line ends as in the source, list marks at their beginning."""
        if depth > _MAX_DEPTH:
            return escape(str(code))
        return "".join(self._node(node, depth + 1) for node in code.nodes)

    def _node(self, node: Any, depth: int) -> str:
        from mwparserfromhell import nodes

        if isinstance(node, nodes.Text):
            return escape(str(node.value), quote=False)
        if isinstance(node, nodes.Heading):
            level = min(node.level, 6)
            return self.held.block(f"<h{level}>{self._inline(node.title, depth).strip()}</h{level}>")
        if isinstance(node, nodes.Wikilink):
            return self._wikilink(node, depth)
        if isinstance(node, nodes.ExternalLink):
            shown = self._inline(node.title, depth) if node.title else escape(str(node.url))
            return self.held.hold(f'<a href="{escape(str(node.url))}">{shown}</a>')
        if isinstance(node, nodes.Template):
            return self._template(node, depth)
        if isinstance(node, nodes.Tag):
            return self._tag(node, depth)
        if isinstance(node, nodes.HTMLEntity):
            return escape(node.normalize())
        if isinstance(node, nodes.Argument):
            return self._inline(node.default, depth) if node.default is not None else ""
        return ""

    def _wikilink(self, node: Any, depth: int) -> str:
        target = " ".join(str(node.title).split())
        space, colon, name = target.lstrip(":").partition(":")
        if colon and not target.startswith(":"):
            if space.strip().lower() in _CATEGORIES:
                self.categories.append(name.strip())
                return ""
            if space.strip().lower() in _FILES:
                return self._picture(name.strip(), node, depth)
        shown = self._inline(node.text, depth) if node.text is not None else escape(target.lstrip(":"))
        if target.startswith("#"):
            return shown
        return self.held.hold(f'<a href="wiki:{escape(target.lstrip(":"))}">{shown}</a>')

    def _picture(self, name: str, node: Any, depth: int) -> str:
        options = str(node.text).split("|") if node.text is not None else []
        caption = options[-1] if options and not _FRAME.fullmatch(options[-1].strip()) else ""
        shown = ""
        if caption:
            import mwparserfromhell

            shown = self._inline(mwparserfromhell.parse(caption), depth + 1)
        address = escape(f"media:{name}")
        if name.lower().rsplit(".", 1)[-1] in ("png", "jpg", "jpeg", "gif", "svg", "webp", "bmp", "tif", "tiff"):
            return self.held.hold(f'<img src="{address}" alt="">') + shown
        return self.held.hold(f'<a href="{address}">{shown or escape(name)}</a>')

    def _template(self, node: Any, depth: int) -> str:
        name = " ".join(str(node.name).split())
        values = [(str(p.name).strip() if p.showkey else "", p.value) for p in node.params]
        if name.startswith("#") or name.lower().startswith(("defaultsort:", "displaytitle:")):
            return " ".join(self._inline(value, depth) for _, value in values)
        named = [(key, value) for key, value in values if key]
        if len(named) >= _TABLE_ROWS:
            rows = "".join(
                f"<tr><td>{escape(key)}</td><td>{self._blocks(self._inline(value, depth).strip())}</td></tr>"
                for key, value in values
                if str(value).strip()
            )
            return self.held.block(f"<table><caption>{escape(name)}</caption>{rows}</table>")
        said = [f"{escape(key)} = {self._inline(value, depth).strip()}" for key, value in named]
        said = [self._inline(value, depth).strip() for key, value in values if not key] + said
        return f"{escape(name)}: {', '.join(said)}" if said else f"({escape(name)})"

    def _tag(self, node: Any, depth: int) -> str:
        name = str(node.tag).strip().lower()
        if name in ("li", "dt", "dd") and node.wiki_markup:
            return str(node.wiki_markup)
        if name == "table":
            return self.held.block(self._table(node, depth))
        if name in _VERBATIM_TAGS:
            return self.held.block(verbatim(str(node.contents)))
        if name == "nowiki":
            return self.held.hold(escape(str(node.contents)))
        if name == "br":
            return self.held.hold("<br>")
        if name == "hr":
            return "\n\n"
        if name == "ref":
            said = self._inline(node.contents, depth).strip() if node.contents else ""
            return f" [{said}]" if said else ""
        if name == "gallery":
            return self._gallery(str(node.contents))
        if name in _DROPPED_TAGS or node.contents is None:
            return ""
        return self._inline(node.contents, depth)

    def _gallery(self, lines: str) -> str:
        pictures = []
        for line in lines.split("\n"):
            name, _, caption = line.strip().partition("|")
            if name:
                bare = name.partition(":")[2] or name
                pictures.append(f'<p><img src="media:{escape(bare)}" alt="">{escape(caption.rsplit("|", 1)[-1])}</p>')
        return self.held.block("".join(pictures))

    def _table(self, node: Any, depth: int) -> str:
        rows: list[list[str]] = [[]]
        caption = ""
        for tag in _tags(node.contents):
            name = str(tag.tag).strip().lower()
            if name == "caption":
                caption = self._inline(tag.contents, depth).strip()
            elif name == "tr":
                rows.append([self._table_cell(cell, depth) for cell in _tags(tag.contents) if _is_cell(cell)])
            elif _is_cell(tag) and not caption and str(tag.contents).startswith("+"):
                caption = self._inline(tag.contents, depth).lstrip("+").strip()
            elif _is_cell(tag):  # the first row needs no mark of its own
                rows[-1].append(self._table_cell(tag, depth))
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows if row)
        return f"<table><caption>{caption}</caption>{body}</table>"

    def _table_cell(self, cell: Any, depth: int) -> str:
        spans = "".join(
            f' {attribute.name}="{escape(str(attribute.value).strip())}"'
            for attribute in cell.attributes
            if str(attribute.name).strip().lower() in ("rowspan", "colspan")
        )
        name = str(cell.tag).strip().lower()
        return f"<{name}{spans}>{self._blocks(self._inline(cell.contents, depth).strip())}</{name}>"


def _tags(code: Any) -> Iterator[Any]:
    from mwparserfromhell import nodes

    return (node for node in code.nodes if isinstance(node, nodes.Tag))


def _is_cell(tag: Any) -> bool:
    return str(tag.tag).strip().lower() in ("td", "th")
