"""DOCX through `unstructured`, which tells paragraphs, headings, lists with their numbers, and what stands in margins.

It does not see tracked insertions, content controls, text boxes, equations, foot- and endnotes, comments and pictures,
so these are laid into the paragraphs beforehand; tables are read apart.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aps_rag_pipeline.content.assembly import Assembly, Partition
from aps_rag_pipeline.content.packages import core_properties, open_package
from aps_rag_pipeline.content.sentences import prepare_unstructured
from aps_rag_pipeline.content.word_preparation import CAPTION, SHIELD, Preparation
from aps_rag_pipeline.content.word_tables import WordTables
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import Blobs

if TYPE_CHECKING:
    from unstructured.documents.elements import Element as Block


def partition_word(data: bytes, limits: Limits, blobs: Blobs) -> Partition:
    """Parts by section, each table its own, pictures behind the text before them.

    Raises:
        UnreadableError: damaged or beyond the limits.
    """
    prepare_unstructured()
    from docx import Document
    from unstructured.partition.docx import partition_docx

    document = Document(io.BytesIO(open_package(data, limits)))
    found = Partition()
    core_properties(document.core_properties, found)
    assembly = Assembly(blobs)
    preparation = Preparation(document, assembly)
    preparation.run()
    target = io.BytesIO()
    document.save(target)
    target.seek(0)
    blocks: list[Block] = partition_docx(file=target, languages=[""])
    _assemble(blocks, preparation.tables, assembly)
    found.parts, found.attachments = assembly.finish()
    links = [*_links(blocks), *preparation.links]
    found.links = list({link.target: link for link in reversed(links)}.values())[::-1]
    found.title = found.title or assembly.first_heading
    return found


def _assemble(blocks: list[Block], tables: WordTables, assembly: Assembly) -> None:
    margins: dict[str, None] = {}
    body: list[Block] = []
    for block in blocks:
        if block.category in ("Header", "Footer"):
            margins[_said(block.text).strip()] = None
        else:
            body.append(block)
    captions = _captions(body, tables)
    for index, block in enumerate(body):
        if index in captions.values():
            continue
        text = _said(block.text)
        if (found := tables.at(block.text)) is not None:
            _tables(found, _caption_at(body, captions.get(index)), assembly)
        elif block.category == "Title" and CAPTION not in block.text:
            assembly.heading((block.metadata.category_depth or 0) + 1, text)
        else:
            assembly.prose("- " + text if block.category == "ListItem" and not text[:1].isdigit() else text)
    if margins:
        assembly.place("header and footer")
        assembly.prose("\n".join(margins))


def _said(text: str) -> str:
    return text.replace(CAPTION, "").replace(SHIELD, "")


def _captions(body: list[Block], tables: WordTables) -> dict[int, int]:
    """Index of a table -> index of its caption, which stands above it or, by a style of its own, below it."""
    found: dict[int, int] = {}
    for index, block in enumerate(body):
        if tables.at(block.text) is None:
            continue
        if index > 0 and index - 1 not in found.values() and _is_caption(body[index - 1].text):
            found[index] = index - 1
        elif index + 1 < len(body) and CAPTION in body[index + 1].text and _is_caption(body[index + 1].text):
            followed = index + 2 < len(body) and tables.at(body[index + 2].text) is not None
            if not followed:  # between two tables a caption belongs to the second
                found[index] = index + 1
    return found


def _caption_at(body: list[Block], index: int | None) -> str:
    return "" if index is None else _said(body[index].text)


def _is_caption(text: str) -> bool:
    words = _said(text).lstrip().lower()
    if len(words) > 300 or words.startswith(("fig", "abb")):
        return False
    return CAPTION in text or words.startswith(("table ", "tab. "))


def _tables(texts: list[str], caption: str, assembly: Assembly) -> None:
    """A table with those that stood in its cells."""
    if not texts:
        assembly.prose(caption)
    for text in texts:
        assembly.table(_said(text), caption)


def _links(blocks: list[Block]) -> Iterator[Link]:
    seen: set[str] = set()
    for block in blocks:
        texts, urls = block.metadata.link_texts or [], block.metadata.link_urls or []
        for text, url in zip(texts, urls, strict=False):
            if url and "://" in url and url not in seen:
                seen.add(url)
                yield Link("url", url, text or "")
