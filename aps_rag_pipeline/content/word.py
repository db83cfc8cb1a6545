"""DOCX through `unstructured`, after what it passes over has been brought where it looks.

It reads paragraphs with their list numbers, headings and tables. It does not see tracked insertions, content controls,
text boxes, equations, foot- and endnotes, comments and pictures, so these are laid into the paragraphs beforehand.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.content.assembly import Assembly, Partition, Picture
from aps_rag_pipeline.content.markup import html_blocks
from aps_rag_pipeline.content.packages import core_properties, open_package
from aps_rag_pipeline.content.sentences import prepare_unstructured
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import Blobs

if TYPE_CHECKING:
    from docx.document import Document
    from lxml.etree import _Element as Element
    from unstructured.documents.elements import Element as Block

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_V = "{urn:schemas-microsoft-com:vml}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_WRAPPERS = tuple(_W + name for name in ("ins", "moveTo", "smartTag", "customXml", "fldSimple", "dir", "bdo"))
_REMOVED = tuple(_W + name for name in ("del", "moveFrom", "sdtPr", "sdtEndPr"))
_CAPTION_STYLES = ("caption", "beschriftung", "lgende", "leyenda")
#: Begins a paragraph of a caption style: `unstructured` does not tell styles.
_CAPTION = "\ue0f2"
_SHIELD = "\ue0f7"
_SIGNED = re.compile(r"\s*[-\u2010-\u2015\u2212*\u00b7]\s*[\d.]")
_NOTES = {"footnoteReference": ("footnotes", "footnote"), "endnoteReference": ("endnotes", "endnote")}
_SYMBOLS = dict(zip(range(0xF061, 0xF07B), "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True)) | {
    0xF0B0: "°",
    0xF0B1: "±",
    0xF0B4: "×",
    0xF0A3: "≤",
    0xF0B3: "≥",
    0xF0AE: "→",
    0xF057: "Ω",
    0xF044: "Δ",
    0xF0B7: "•",
}


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
    _Preparation(document, assembly).run()
    target = io.BytesIO()
    document.save(target)
    target.seek(0)
    blocks: list[Block] = partition_docx(file=target, languages=[""])
    _assemble(blocks, assembly)
    found.parts, found.attachments = assembly.finish()
    found.links = list(_links(blocks))
    found.title = found.title or assembly.first_heading
    return found


def _assemble(blocks: list[Block], assembly: Assembly) -> None:
    margins: dict[str, None] = {}
    body: list[Block] = []
    for block in blocks:
        if block.category in ("Header", "Footer"):
            margins[_said(block.text).strip()] = None
        else:
            body.append(block)
    captions = _captions(body)
    for index, block in enumerate(body):
        if index in captions.values():
            continue
        text = _said(block.text)
        if block.category == "Table":
            _table(block.metadata.text_as_html or "", _caption_at(body, captions.get(index)), assembly)
        elif block.category == "Title" and _CAPTION not in block.text:
            assembly.heading((block.metadata.category_depth or 0) + 1, text)
        else:
            assembly.prose("- " + text if block.category == "ListItem" and not text[:1].isdigit() else text)
    if margins:
        assembly.place("header and footer")
        assembly.prose("\n".join(margins))


def _said(text: str) -> str:
    return text.replace(_CAPTION, "").replace(_SHIELD, "")


def _captions(body: list[Block]) -> dict[int, int]:
    """Index of a table -> index of its caption, which stands above it or, by a style of its own, below it."""
    found: dict[int, int] = {}
    for index, block in enumerate(body):
        if block.category != "Table":
            continue
        if index > 0 and index - 1 not in found.values() and _is_caption(body[index - 1].text):
            found[index] = index - 1
        elif index + 1 < len(body) and _CAPTION in body[index + 1].text and _is_caption(body[index + 1].text):
            followed = index + 2 < len(body) and body[index + 2].category == "Table"
            if not followed:  # between two tables a caption belongs to the second
                found[index] = index + 1
    return found


def _caption_at(body: list[Block], index: int | None) -> str:
    return "" if index is None else _said(body[index].text)


def _is_caption(text: str) -> bool:
    words = _said(text).lstrip().lower()
    if len(words) > 300 or words.startswith(("fig", "abb")):
        return False
    return _CAPTION in text or words.startswith(("table ", "tab. "))


def _table(html: str, caption: str, assembly: Assembly) -> None:
    for block in html_blocks(_said(html)):
        if block.kind == "table":
            assembly.table(block.text, caption)
            caption = ""
        else:
            assembly.prose(block.text)
    assembly.prose(caption)


def _links(blocks: list[Block]) -> Iterator[Link]:
    seen: set[str] = set()
    for block in blocks:
        texts, urls = block.metadata.link_texts or [], block.metadata.link_urls or []
        for text, url in zip(texts, urls, strict=False):
            if url and "://" in url and url not in seen:
                seen.add(url)
                yield Link("url", url, text or "")


class _Preparation:
    """Rewrites the body of a document so that everything a reader sees stands in its paragraphs."""

    def __init__(self, document: Document, assembly: Assembly) -> None:
        self.document = document
        self.assembly = assembly
        self.body: Any = document.element.body

    def run(self) -> None:
        self._settle_changes()
        self._mark_captions()
        self._shield_signs()
        self._spell_symbols()
        self._spell_equations()
        self._mark_pictures()
        self._lift_boxes()
        self._lay_in_notes()
        self._lay_in_comments()

    def _settle_changes(self) -> None:
        for removed in list(self.body.iter(*_REMOVED)):
            _drop(removed)
        for choice in list(self.body.iter(_MC + "AlternateContent")):
            branches = [child for child in choice if child.tag == _MC + "Choice"] or list(choice)
            for branch in list(choice):
                if branch is not branches[0]:
                    choice.remove(branch)
            if branches:
                _unwrap(branches[0])
            _unwrap(choice)
        for wrapper in list(self.body.iter(*_WRAPPERS)):
            _unwrap(wrapper)
        for control in list(self.body.iter(_W + "sdt")):
            content = control.find(_W + "sdtContent")
            if content is not None:
                _unwrap(content)
            _unwrap(control)

    def _mark_captions(self) -> None:
        for paragraph in self.body.iter(_W + "p"):
            style = paragraph.find(f"{_W}pPr/{_W}pStyle")
            if style is not None and style.get(_W + "val", "").lower() in _CAPTION_STYLES:
                properties = paragraph.find(_W + "pPr")
                properties.addnext(_run(_CAPTION))

    def _shield_signs(self) -> None:
        """A minus before a number would be taken for a bullet and dropped."""
        for first in self.body.iter(_W + "t"):
            if _SIGNED.match(first.text or ""):
                first.text = _SHIELD + (first.text or "")

    def _spell_symbols(self) -> None:
        for symbol in list(self.body.iter(_W + "sym")):
            code = symbol.get(_W + "char", "")
            number = int(code, 16) if len(code) == 4 and all(c in "0123456789abcdefABCDEF" for c in code) else 0
            if text := _SYMBOLS.get(number, ""):
                symbol.addprevious(_text_element(text))

    def _spell_equations(self) -> None:
        for equation in list(self.body.iter(_M + "oMath")):
            text = "".join(piece.text or "" for piece in equation.iter(_M + "t"))
            equation.addprevious(_run(text))
            _drop(equation)
        for group in list(self.body.iter(_M + "oMathPara")):
            _unwrap(group)

    def _mark_pictures(self) -> None:
        for shown in list(self.body.iter(_A + "blip", _V + "imagedata")):
            relation = shown.get(_R + "embed") or shown.get(_R + "id") or ""
            part: Any = self.document.part.related_parts.get(relation)
            paragraph = next(shown.iterancestors(_W + "p"), None)
            if part is None or paragraph is None:
                continue
            name = str(part.partname).rsplit("/", 1)[-1]
            paragraph.append(_run(self.assembly.mark(Picture(name, part.blob, part.content_type))))

    def _lift_boxes(self) -> None:
        """Text boxes become paragraphs behind the one that holds them."""
        for box in list(self.body.iter(_W + "txbxContent")):
            anchor = next(box.iterancestors(_W + "p"), None)
            if anchor is None:
                continue
            for block in reversed(list(box)):
                anchor.addnext(block)

    def _lay_in_notes(self) -> None:
        for reference, (part_name, tag) in _NOTES.items():
            notes = self._notes(part_name, tag)
            for mark in list(self.body.iter(_W + reference)):
                note = notes.get(mark.get(_W + "id", ""), "")
                paragraph = next(mark.iterancestors(_W + "p"), None)
                if note and paragraph is not None:
                    mark.addprevious(_text_element(f"[{mark.get(_W + 'id')}]"))
                    self._behind(paragraph, f"[{mark.get(_W + 'id')}] {note}")

    def _notes(self, part_name: str, tag: str) -> dict[str, str]:
        from docx.oxml import parse_xml

        for relation in self.document.part.rels.values():
            if not relation.is_external and relation.reltype.endswith(f"/{part_name}"):
                root: Any = parse_xml(relation.target_part.blob)
                return {note.get(_W + "id", ""): _plain(note) for note in root.iter(_W + tag)}
        return {}

    def _lay_in_comments(self) -> None:
        comments = {str(comment.comment_id): comment for comment in self.document.comments}
        for mark in list(self.body.iter(_W + "commentReference")):
            comment = comments.get(mark.get(_W + "id", ""))
            paragraph = next(mark.iterancestors(_W + "p"), None)
            if comment is not None and comment.text.strip() and paragraph is not None:
                self._behind(paragraph, f"[Comment by {comment.author or 'unknown'}: {comment.text.strip()}]")

    def _behind(self, paragraph: Element, text: str) -> None:
        made = paragraph.makeelement(_W + "p", {}, None)
        made.append(_run(text))
        following = paragraph
        while (after := following.getnext()) is not None and after.get("note") == "yes":
            following = after  # several notes of a paragraph keep their order
        following.addnext(made)
        made.set("note", "yes")


def _plain(element: Element) -> str:
    paragraphs = ("".join(piece.text or "" for piece in p.iter(_W + "t")) for p in element.iter(_W + "p"))
    return " ".join(text.strip() for text in paragraphs if text.strip())


def _text_element(text: str) -> Any:
    from docx.oxml import OxmlElement

    made = OxmlElement("w:t")
    made.text = text
    made.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
    return made


def _run(text: str) -> Any:
    from docx.oxml import OxmlElement

    run = OxmlElement("w:r")
    run.append(_text_element(text))
    return run


def _unwrap(element: Element) -> None:
    """Put the children of an element in its place."""
    parent = element.getparent()
    if parent is None:
        return
    for child in list(element):
        element.addprevious(child)
    parent.remove(element)


def _drop(element: Element) -> None:
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)
