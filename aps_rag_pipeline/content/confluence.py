"""Confluence's storage format, XHTML with macros, to HTML.

Links to pages get addresses of the form `wiki:<space>/<title>`, percent-encoded, the space empty for the page's own;
attachments `media:<name>` or, on another page, `media:<space>/<title>^<name>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from html.entities import html5
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from aps_rag_pipeline.content.wikilines import WikiText, plain_html, verbatim

if TYPE_CHECKING:
    from lxml.etree import _Element

_ENTITY = re.compile(r"&([A-Za-z][A-Za-z0-9]*);")
_XML_ENTITIES = frozenset(("amp", "lt", "gt", "quot", "apos"))
_NAMESPACES = "".join(f' xmlns:{name}="urn:{name}"' for name in ("ac", "ri", "at"))
_MAX_PAGE = 4_000_000
_MAX_DEPTH = 120
#: What is made when the page is shown: lists of other pages, tables of contents, other people's doings.
# fmt: off
_MADE = frozenset((
    "toc", "toc-zone", "children", "pagetree", "pagetreesearch", "recently-updated", "recently-updated-dashboard",
    "contentbylabel", "content-report-table", "detailssummary", "livesearch", "anchor", "blog-posts", "attachments",
    "change-history", "contributors", "contributors-summary", "create-from-template", "favpages", "gallery", "index",
    "labels-list", "listlabels", "navmap", "popular-labels", "profile", "profile-picture", "related-labels",
    "search", "space-details", "spaces", "tasks-report-macro", "userlister", "loremipsum", "iframe", "rss", "chart",
))
# fmt: on
_CODE = frozenset(("code", "noformat", "mathblock", "latex", "html", "sql", "plantuml", "mermaid", "markdown"))
_DROPPED = frozenset(("ac:placeholder", "ac:parameter", "ac:task-id", "ac:task-uuid", "ac:adf-fallback"))
_EMPTY = frozenset(("br", "hr", "img", "col", "wbr"))


def storage_to_html(text: str) -> WikiText:
    """A page as HTML. Text that is not well formed is read as far as it goes; what is no markup at all, as prose."""
    if len(text) > _MAX_PAGE:
        return WikiText(plain_html(text))
    from lxml import etree

    parser = etree.XMLParser(recover=True, resolve_entities=False, no_network=True, strip_cdata=False)
    root = etree.fromstring(f"<page{_NAMESPACES}>{_with_characters(text)}</page>".encode(), parser)
    if root is None:
        return WikiText(plain_html(text))
    return WikiText("".join(_inside(root, 0)))


def _with_characters(text: str) -> str:
    """Named entities of HTML as characters, which XML does not know; verbatim stretches stay as they are."""
    pieces: list[str] = []
    position = 0
    while (start := text.find("<![CDATA[", position)) >= 0 and (end := text.find("]]>", start)) >= 0:
        pieces += [_ENTITY.sub(_character, text[position:start]), text[start : end + 3]]
        position = end + 3
    return "".join([*pieces, _ENTITY.sub(_character, text[position:])])


def _character(match: re.Match[str]) -> str:
    name = match[1]
    return match[0] if name in _XML_ENTITIES else escape(html5.get(f"{name};", match[0]))


def _inside(node: _Element, depth: int) -> Iterator[str]:
    yield escape(node.text or "", quote=False)
    for child in node:
        if isinstance(child.tag, str):
            yield _element(child, depth + 1)
        yield escape(child.tail or "", quote=False)


def _element(node: _Element, depth: int) -> str:
    if depth > _MAX_DEPTH:
        return escape(" ".join(str(piece) for piece in node.itertext()))
    name = _name(str(node.tag))
    if not name.startswith(("ac:", "ri:", "at:")):
        return _plain(name, node, depth)
    match name:
        case "ac:structured-macro" | "ac:macro":
            return _macro(node, depth)
        case "ac:link":
            return _link(node, depth)
        case "ac:image":
            return _image(node, depth)
        case "ac:task-list":
            return f"<ul>{''.join(_inside(node, depth))}</ul>"
        case "ac:task":
            done = _text(node, "ac:task-status") == "complete"
            body = "".join("".join(_inside(child, depth)) for child in _children(node, "ac:task-body"))
            return f"<li>[{'x' if done else ' '}] {body}</li>"
        case "ac:emoticon":
            return escape(_value(node, "ac:emoji-fallback") or "")
        case "ri:user":
            return escape(_user(node))
        case "ri:page" | "ri:attachment" | "ri:url" | "ri:blog-post":
            return _reference(node, "")
        case "ac:plain-text-body":
            return verbatim("".join(str(piece) for piece in node.itertext()))
    return "" if name in _DROPPED else "".join(_inside(node, depth))


def _plain(name: str, node: _Element, depth: int) -> str:
    if name == "time":
        return escape(_value(node, "datetime") or "".join(str(piece) for piece in node.itertext()))
    attributes = "".join(f' {key}="{escape(value)}"' for key, value in _attributes(node) if not key.startswith("{"))
    if name in _EMPTY:
        return f"<{name}{attributes}>"
    return f"<{name}{attributes}>{''.join(_inside(node, depth))}</{name}>"


def _attributes(node: _Element) -> list[tuple[str, str]]:
    return [(str(key), str(value)) for key, value in node.attrib.items()]


def _macro(node: _Element, depth: int) -> str:
    name = (_value(node, "ac:name") or "").lower()
    if name in _MADE:
        return ""
    stated = {(_value(child, "ac:name") or ""): child for child in _children(node, "ac:parameter")}
    said = {key: "".join(str(piece) for piece in child.itertext()).strip() for key, child in stated.items()}
    title = f"<p>{escape(said['title'])}</p>" if said.get("title") else ""
    bodies = [_element(child, depth + 1) for child in _children(node, "ac:plain-text-body")]
    rich = ["".join(_inside(child, depth + 1)) for child in _children(node, "ac:rich-text-body")]
    if name in _CODE:
        return title + "".join(bodies or rich)
    if name == "status":
        return escape(said.get("title", ""))
    if name in ("jira", "jiraissues"):
        return escape(said.get("key") or said.get("jqlQuery", ""))
    referred = "".join(_element(child, depth + 1) for parameter in stated.values() for child in parameter)
    if bodies or rich:
        return f"<div>{title}{referred}{''.join(bodies)}{''.join(rich)}</div>"
    if referred:
        return referred
    values = ", ".join(value for value in said.values() if value)
    return f"({escape(name)}: {escape(values)})" if values else ""


def _link(node: _Element, depth: int) -> str:
    shown = ""
    for child in node:
        if isinstance(child.tag, str) and _name(child.tag) == "ac:plain-text-link-body":
            shown = escape("".join(str(piece) for piece in child.itertext()))
        elif isinstance(child.tag, str) and _name(child.tag) == "ac:link-body":
            shown = "".join(_inside(child, depth))
    for child in node:
        if isinstance(child.tag, str) and _name(child.tag).startswith("ri:"):
            return _reference(child, shown)
    return shown or escape(_value(node, "ac:anchor") or "")  # a place in the page itself


def _reference(node: _Element, shown: str) -> str:
    """A link to what a resource identifier names, or its words where it names no address."""
    if _name(str(node.tag)) == "ri:user":
        return shown or escape(_user(node))
    address, words = _address(node)
    return f'<a href="{escape(address)}">{shown or escape(words)}</a>' if address else shown or escape(words)


def _address(node: _Element) -> tuple[str, str]:
    """Where a resource identifier leads, and words for it."""
    name = _name(str(node.tag))
    space = _value(node, "ri:space-key") or ""
    title = _value(node, "ri:content-title") or ""
    page = f"{space}/{title}"
    if name == "ri:url":
        address = _value(node, "ri:value") or ""
        return address, address
    if name == "ri:attachment":
        file = _value(node, "ri:filename") or ""
        owner = next((_address(child)[0] for child in node if isinstance(child.tag, str)), "")
        owner = unquote(owner.removeprefix("wiki:"))
        return (f"media:{owner}^{file}" if owner else f"media:{file}") if file else "", file
    if name in ("ri:page", "ri:blog-post"):
        return (f"wiki:{quote(page)}" if title else ""), title
    return "", space


def _image(node: _Element, depth: int) -> str:
    referred = next(
        (child for child in node if isinstance(child.tag, str) and _name(child.tag).startswith("ri:")), None
    )
    address, file = _address(referred) if referred is not None else ("", "")
    words = _value(node, "ac:alt") or ""
    caption = "".join("".join(_inside(child, depth)) for child in _children(node, "ac:caption"))
    picture = f'<img src="{escape(address)}" alt="{escape(words)}">' if address else escape(words or file)
    return picture + caption


def _user(node: _Element) -> str:
    """A mention. Only old pages say a name; keys mean nothing to a reader."""
    return f"@{_value(node, 'ri:username') or 'user'}"


def _text(node: _Element, name: str) -> str:
    return "".join(str(piece) for child in _children(node, name) for piece in child.itertext()).strip()


def _children(node: _Element, name: str) -> list[_Element]:
    return [child for child in node if isinstance(child.tag, str) and _name(child.tag) == name]


def _name(tag: str) -> str:
    """`ac:link` for the expanded name of an element."""
    return tag.removeprefix("{urn:").replace("}", ":", 1) if tag.startswith("{urn:") else tag


def _value(node: _Element, name: str) -> str | None:
    prefix, _, local = name.rpartition(":")
    found = node.get(f"{{urn:{prefix}}}{local}" if prefix else local)
    return None if found is None else str(found)
