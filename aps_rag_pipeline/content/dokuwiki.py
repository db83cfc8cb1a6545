"""DokuWiki markup to HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from aps_rag_pipeline.content.wikilines import (
    Held,
    Item,
    WikiText,
    is_held,
    nested_list,
    plain_html,
    replace_spans,
    verbatim,
)

_CODE = re.compile(r"<(?:code|file|html|php)\b[^<>\n]*>", re.IGNORECASE)
_LITERAL = re.compile(r"<nowiki>|%%", re.IGNORECASE)
_REDIRECT = re.compile(r"~~(?:REDIRECT|GOTO)>([^~\n]+)~~|^#REDIRECT\s+\[\[([^\]|]+)", re.IGNORECASE | re.MULTILINE)
_MACRO = re.compile(r"~~[A-Z][\w:>. -]*~~", re.IGNORECASE)
_WRAPPER = re.compile(r"</?(?:wrap|note|alert|hidden|box|u|color|fs|fc|center)\b[^<>\n]*>", re.IGNORECASE)
_HEADING = re.compile(r"^\s{0,1}(={2,6})(.+?)={2,}\s*$")
_LIST = re.compile(r"^((?: {2}|\t)\s*)([*-])(?!\2{3})\s?(.*)$")
_QUOTE = re.compile(r"^(>+)\s?(.*)$")
_BRACKETS = re.compile(r"\[\[|\{\{|\(\(")
_CLOSINGS = {"[[": "]]", "{{": "}}", "((": "))"}
_URL = re.compile(r"(?:https?|ftp)://[^\s<>\"|^\]]+")
_MAIL = re.compile(r"<([\w.+-]+@[\w-]+(?:\.[\w-]+)+)>")
_STYLES = (
    re.compile(r"\*\*(.+?)\*\*"),
    re.compile(r"(?<!:)//(.+?)(?<!:)//"),
    re.compile(r"__(.+?)__"),
    re.compile(r"''(.+?)''"),
    re.compile(r"&lt;(?:sub|sup|del)&gt;(.+?)&lt;/(?:sub|sup|del)&gt;"),
)
_BREAK = re.compile(r"\\\\(?:\s|$)")
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".svg", ".webp", ".tif", ".tiff")
#: A longer line is no line that anybody wrote; looking for pairs in it would take minutes.
_MAX_STYLED = 4_000
_MAX_PAGE = 2_000_000
_HIDDEN_BAR, _HIDDEN_HAT = "\ue0f5", "\ue0f6"


def dokuwiki_to_html(text: str) -> WikiText:
    """A page as HTML, its tags, and where it redirects to."""
    if len(text) > _MAX_PAGE:
        return WikiText(plain_html(text))
    redirect = _REDIRECT.search(text)
    reader = _Reader()
    html = reader.read(_REDIRECT.sub("", text))
    target = (redirect[1] or redirect[2]).strip() if redirect else ""
    return WikiText(html, list(dict.fromkeys(reader.tags)), target)


class _Reader:
    def __init__(self) -> None:
        self.held = Held()
        self.tags: list[str] = []

    def read(self, text: str) -> str:
        text = replace_spans(text, _CODE, _code_end, lambda _, inside: self.held.block(verbatim(inside)))
        text = replace_spans(text, _LITERAL, _literal_end, lambda _, inside: self.held.hold(escape(inside)))
        text = _WRAPPER.sub("", _MACRO.sub("", text))
        return self.held.release("\n".join(self._blocks(text.split("\n"))))

    def _blocks(self, lines: list[str]) -> Iterator[str]:
        position = 0
        paragraph: list[str] = []

        def finished() -> Iterator[str]:
            if paragraph:
                yield f"<p>{self._inline(chr(10).join(paragraph))}</p>"
                paragraph.clear()

        while position < len(lines):
            line = lines[position]
            taken = 1
            block = ""
            if heading := _HEADING.match(line):
                level = 7 - len(heading[1])
                block = f"<h{level}>{self._inline(heading[2].strip())}</h{level}>"
            elif _LIST.match(line):
                block, taken = self._list(lines, position)
            elif line.startswith(("|", "^")):
                block, taken = self._table(lines, position)
            elif line.startswith(("  ", "\t")) and line.strip() and not is_held(line):
                block, taken = self._indented(lines, position)
            elif quote := _QUOTE.match(line):
                block = f"<blockquote>{self._inline(quote[2])}</blockquote>"
            elif is_held(line):
                block = line
            elif line.strip() and not re.fullmatch(r"\s*-{4,}\s*", line):
                paragraph.append(line)
                position += 1
                continue
            yield from finished()
            if block:
                yield block
            position += taken
        yield from finished()

    def _list(self, lines: list[str], start: int) -> tuple[str, int]:
        items: list[Item] = []
        position = start
        while position < len(lines) and (match := _LIST.match(lines[position])):
            depth = len(match[1].replace("\t", "  ")) // 2
            items.append(Item(depth, "ul" if match[2] == "*" else "ol", self._inline(match[3].strip())))
            position += 1
        return nested_list(items), position - start

    def _indented(self, lines: list[str], start: int) -> tuple[str, int]:
        position = start
        while position < len(lines) and lines[position].startswith(("  ", "\t")) and not _LIST.match(lines[position]):
            position += 1
        return verbatim("\n".join(line.removeprefix("  ") for line in lines[start:position])), position - start

    def _table(self, lines: list[str], start: int) -> tuple[str, int]:
        rows: list[str] = []
        above: list[str] = []
        position = start
        while position < len(lines) and lines[position].startswith(("|", "^")):
            cells: list[tuple[str, str, int]] = []  # tag, content, columns
            line: list[str] = []
            for column, (tag, raw) in enumerate(self._cells(lines[position])):
                if raw == "" and cells:  # two bars without a blank between them: the cell before goes on
                    cells[-1] = (cells[-1][0], cells[-1][1], cells[-1][2] + 1)
                    line.append("")
                else:
                    said = raw.strip()
                    content = above[column] if said == ":::" and column < len(above) else self._inline(said)
                    cells.append((tag, content, 1))
                    line.append(content)
            above = line
            rows.append("".join(f'<{tag} colspan="{span}">{content}</{tag}>' for tag, content, span in cells))
            position += 1
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>", position - start

    @staticmethod
    def _cells(line: str) -> Iterator[tuple[str, str]]:
        def hide(opening: str, inside: str) -> str:
            return opening + inside.replace("|", _HIDDEN_BAR).replace("^", _HIDDEN_HAT) + _CLOSINGS[opening]

        pieces = re.split(r"([|^])", replace_spans(line.rstrip(), _BRACKETS, _CLOSINGS.__getitem__, hide))
        if pieces[-1] != "":  # the closing bar was forgotten
            pieces += ["|", ""]
        for mark, content in zip(pieces[1:-2:2], pieces[2:-1:2], strict=False):
            yield ("th" if mark == "^" else "td"), content.replace(_HIDDEN_BAR, "|").replace(_HIDDEN_HAT, "^")

    def _inline(self, text: str) -> str:
        if len(text) > _MAX_STYLED and max(map(len, text.split("\n"))) > _MAX_STYLED:
            return escape(text, quote=False)
        text = self._brackets(text)
        text = _MAIL.sub(lambda match: self.held.hold(f'<a href="mailto:{match[1]}">{match[1]}</a>'), text)
        text = _URL.sub(self._address, text)
        text = escape(text, quote=False)
        for style in _STYLES:
            text = style.sub(r"\1", text)
        return _BREAK.sub("<br>", text)

    def _address(self, match: re.Match[str]) -> str:
        url = match[0].rstrip(".,;:!?)'")
        return self.held.hold(f'<a href="{escape(url)}">{escape(url)}</a>') + match[0][len(url) :]

    def _brackets(self, text: str) -> str:
        return replace_spans(text, _BRACKETS, _CLOSINGS.__getitem__, self._bracket)

    def _bracket(self, opening: str, inside: str) -> str:
        if opening == "((":
            return f" [{self._brackets(inside.strip())}]"
        return self._link(inside) if opening == "[[" else self._media(inside)

    def _link(self, inside: str) -> str:
        target, _, label = inside.partition("|")
        target, label = target.strip(), label.strip()
        shown = self._brackets(label) if label.startswith("{{") else escape(label)
        if "://" in target:
            return self.held.hold(f'<a href="{escape(target)}">{shown or escape(target)}</a>')
        if re.match(r"[\w.+-]+@[\w-]+\.", target):
            return self.held.hold(f'<a href="mailto:{escape(target)}">{shown or escape(target)}</a>')
        if ">" in target or target.startswith("\\\\"):  # another wiki, a user, a shared drive
            return self.held.hold(shown or escape(target.partition(">")[2] or target))
        name = target.partition("#")[0].strip(":").rsplit(":", 1)[-1] or target.lstrip("#")
        if target.startswith("#"):
            return self.held.hold(shown or escape(name))
        return self.held.hold(f'<a href="wiki:{escape(target)}">{shown or escape(name)}</a>')

    def _media(self, inside: str) -> str:
        target, _, label = inside.partition("|")
        target, label = target.strip(), label.strip()
        plugin = re.match(r"([a-z]+)>(.*)", target, re.DOTALL)
        if plugin:
            return self._plugin(plugin[1], plugin[2].strip())
        name, _, options = target.partition("?")
        bare = name.rsplit(":", 1)[-1].rsplit("/", 1)[-1]
        address = name if "://" in name else f"media:{name}"
        if name.lower().endswith(_PICTURES) and "linkonly" not in options:
            return self.held.hold(f'<img src="{escape(address)}" alt="{escape(label)}">')
        return self.held.hold(f'<a href="{escape(address)}">{escape(label or bare)}</a>')

    def _plugin(self, name: str, argument: str) -> str:
        if name == "tag":
            self.tags += [tag.strip('",') for tag in re.findall(r'"[^"]+"|\S+', argument) if tag.strip('",')]
        elif name in ("page", "section"):
            return self._link(argument)
        elif "://" in argument:
            return self._link(argument.split()[0])
        return ""


def _code_end(opening: str) -> str:
    return f"</{re.split(r'[^a-z]', opening[1:].lower())[0]}>"


def _literal_end(opening: str) -> str:
    return "%%" if opening == "%%" else "</nowiki>"
