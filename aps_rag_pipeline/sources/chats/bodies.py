"""What a chat message says and shows: its body as blocks of text, its cards, quotes, files and pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from aps_rag_pipeline.content.markup import Block, html_to_text, parse_html, tree_blocks
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.sources.jsonfiles import JsonObject, at, mapping, sequence, string

if TYPE_CHECKING:
    from bs4 import Tag

_HOSTED = re.compile(r"hostedContents/([^/?#]+)/\$value", re.IGNORECASE)
_UNTITLED = re.compile(r"\[picture\]|\(?https?://\S+")
_MAX_CARD_DEPTH = 60
#: Parts of a card that are for clicking, drawing or reading aloud.
_CARD_SILENT = frozenset(
    (
        "actions",
        "buttons",
        "potentialAction",
        "selectAction",
        "tap",
        "speak",
        "fallbackText",
        "type",
        "$schema",
        "style",
    )
)
_CARD_TEXTS = frozenset(
    ("title", "subtitle", "text", "summary", "name", "activityTitle", "activitySubtitle", "activityText")
)


@dataclass
class Body:
    """A message made readable. `pictures` are ids of hosted content or `data:` addresses, in order."""

    blocks: list[Block] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    quoted: list[str] = field(default_factory=list)


def read_body(data: JsonObject) -> Body:
    """The body of a chatMessage with its attachments in the places that its text keeps for them."""
    body = Body()
    content = clean(str(at(data, "body.content") or ""))
    waiting = {string(item.get("id")): item for item in map(mapping, sequence(data.get("attachments")))}
    if at(data, "body.contentType") == "html":
        tree = parse_html(content)
        _make_readable(tree, waiting, body)
        body.blocks = tree_blocks(tree)
    elif content.strip():
        body.blocks = [Block("prose", content.strip())]
    for item in waiting.values():
        body.blocks.append(Block("prose", "\n".join(_attached(item, body))))
    body.blocks = [block for block in body.blocks if block.text.strip()]
    return body


def plain_title(body: Body) -> str:
    """The first line that says something, without addresses; empty for a message of pictures alone."""
    lines = (_UNTITLED.sub("", line).strip() for block in body.blocks for line in block.text.split("\n"))
    return next((line for line in lines if any(char.isalnum() for char in line)), "")


def _make_readable(tree: Tag, waiting: dict[str, JsonObject], body: Body) -> None:
    """Turn what only Teams can show into text: mentions, pictures, attachments where the text keeps their place."""
    for tag in tree.find_all(("attachment", "at", "codeblock", "customemoji", "img")):
        if tag.name == "attachment":
            item = waiting.pop(string(tag.get("id")), None)
            tag.replace_with(_paragraph(_attached(item, body)) if item else "")
        elif tag.name == "at":
            tag.replace_with(f"@{tag.get_text().strip()}")
        elif tag.name == "img":
            tag.replace_with(_picture(string(tag.get("src")), string(tag.get("alt")), body))
        else:
            tag.name = "pre" if tag.name == "codeblock" else "emoji"


def _picture(source: str, caption: str, body: Body) -> str:
    hosted = _HOSTED.search(source)
    if hosted or source.startswith("data:"):
        body.pictures.append(unquote(hosted.group(1)) if hosted else source)
    elif source.startswith(("http://", "https://")):
        body.links.append(Link("url", source, caption))
    named = caption if caption.lower() not in ("", "image", "picture") else ""
    return f" [picture: {named}] " if named else " [picture] "


def _paragraph(lines: list[str]) -> Tag:
    from bs4 import Tag

    paragraph = Tag(name="p")
    for number, line in enumerate(lines):
        if number:
            paragraph.append(Tag(name="br"))
        paragraph.append(line)
    return paragraph


def _attached(item: JsonObject, body: Body) -> list[str]:
    """An attachment in words; what it points at goes to the links."""
    kind, name, url = (string(item.get(key)) for key in ("contentType", "name", "contentUrl"))
    content = _content(item.get("content"))
    if kind in ("messageReference", "forwardedMessageReference"):
        return _quote(content, body)
    hosted = _HOSTED.search(url)
    if hosted:
        body.pictures.append(unquote(hosted.group(1)))
        return [f"[picture: {name}]" if name else "[picture]"]
    if url.startswith(("http://", "https://")):
        body.links.append(Link("file" if kind == "reference" else "url", url, name))
    lines = list(_card_lines(content, body, 0))
    if lines:
        return lines
    return [f"[file: {name or url}]"] if name or url else []


def _content(value: object) -> object:
    """Cards carry their JSON as a text; one that is no JSON is kept as that text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return {"text": value}


def _quote(content: object, body: Body) -> list[str]:
    """A message that this one answers or passes on."""
    for sender, text, message in (
        ("messageSender", "messagePreview", "messageId"),
        ("originalMessageSender", "originalMessageContent", "originalMessageId"),
    ):
        said = string(at(content, text))
        if not said:
            continue
        body.quoted.append(string(at(content, message)))
        name = string(at(content, f"{sender}.user.displayName")) or string(
            at(content, f"{sender}.application.displayName")
        )
        lines = (html_to_text(said) if "<" in said else said).split("\n")
        return [f"> {name + ': ' if name and not number else ''}{line}" for number, line in enumerate(lines)]
    return []


def _card_lines(value: object, body: Body, depth: int) -> Iterator[str]:
    """What a card shows, in its own order, whatever kind of card it is."""
    if depth > _MAX_CARD_DEPTH:
        return
    for item in sequence(value):
        yield from _card_lines(item, body, depth + 1)
    for key, item in mapping(value).items():
        if key in _CARD_SILENT:
            _card_urls(item, body, depth + 1)
        elif key == "facts":
            for fact in sequence(item):
                name, said = string(at(fact, "title")) or string(at(fact, "name")), string(at(fact, "value"))
                yield f"{name.rstrip(':')}: {said}"
        elif key in _CARD_TEXTS and isinstance(item, str):
            text = html_to_text(clean(item)) if "<" in item else clean(item).strip()
            yield from (line for line in text.split("\n") if line.strip())
        elif isinstance(item, dict | list):
            yield from _card_lines(item, body, depth + 1)


def _card_urls(value: object, body: Body, depth: int) -> None:
    if depth > _MAX_CARD_DEPTH:
        return
    for item in sequence(value):
        if isinstance(item, dict | list):
            _card_urls(item, body, depth + 1)
    found = mapping(value)
    for key in ("url", "value", "uri"):
        url = string(found.get(key))
        if url.startswith(("http://", "https://")):
            body.links.append(Link("url", url, string(found.get("title")) or string(found.get("name"))))
    for nested in found.values():
        if isinstance(nested, dict | list):
            _card_urls(nested, body, depth + 1)
