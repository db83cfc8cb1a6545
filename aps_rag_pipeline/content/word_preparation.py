"""Word files before `unstructured` sees them: what it passes over is laid where it looks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.content.assembly import Assembly, Picture
from aps_rag_pipeline.content.word_changes import accept_changes
from aps_rag_pipeline.content.word_lists import ListNumbers
from aps_rag_pipeline.content.word_tables import WordTables, table_links
from aps_rag_pipeline.content.word_xml import R, W, drop, paragraph, plain, run, text_element, unwrap
from aps_rag_pipeline.records import Link

if TYPE_CHECKING:
    from docx.document import Document
    from lxml.etree import _Element as Element

_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_V = "{urn:schemas-microsoft-com:vml}"
_CAPTION_STYLES = ("caption", "beschriftung", "lgende", "leyenda")
#: Begins a paragraph of a caption style: `unstructured` does not tell styles.
CAPTION = "\ue0f2"
SHIELD = "\ue0f7"
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


class Preparation:
    """Rewrites the body of a document so that everything a reader sees stands in its paragraphs."""

    def __init__(self, document: Document, assembly: Assembly) -> None:
        self.document = document
        self.assembly = assembly
        self.body: Any = document.element.body
        self.tables = WordTables()
        #: Those in tables; `unstructured` tells the others.
        self.links: list[Link] = []

    def run(self) -> None:
        margins = self._margins()
        for root in (self.body, *margins):
            accept_changes(root)
            _spell_symbols(root)
        ListNumbers(self.document).lay_in(self.body)
        self._mark_captions()
        self._shield_signs()
        self._spell_equations()
        self._mark_pictures()
        for root in (self.body, *margins):
            _lift_boxes(root)
        self._lay_in_notes()
        self._lay_in_comments()
        self.links = list(table_links(self.body, self._targets()))
        self.tables.take(self.body)

    def _margins(self) -> list[Any]:
        """Headers and footers of all sections."""
        parts = (one.target_part for one in self.document.part.rels.values() if not one.is_external and _is_margin(one))
        return [part.element for part in parts if hasattr(part, "element")]

    def _targets(self) -> dict[str, str]:
        return {key: one.target_ref for key, one in self.document.part.rels.items() if one.is_external}

    def _mark_captions(self) -> None:
        for styled in self.body.iter(W + "p"):
            style = styled.find(f"{W}pPr/{W}pStyle")
            if style is not None and style.get(W + "val", "").lower() in _CAPTION_STYLES:
                properties = styled.find(W + "pPr")
                properties.addnext(run(CAPTION))

    def _shield_signs(self) -> None:
        """A minus before a number would be taken for a bullet and dropped."""
        for first in self.body.iter(W + "t"):
            if _SIGNED.match(first.text or ""):
                first.text = SHIELD + (first.text or "")

    def _spell_equations(self) -> None:
        for equation in list(self.body.iter(_M + "oMath")):
            text = "".join(piece.text or "" for piece in equation.iter(_M + "t"))
            equation.addprevious(run(text))
            drop(equation)
        for group in list(self.body.iter(_M + "oMathPara")):
            unwrap(group)

    def _mark_pictures(self) -> None:
        for shown in list(self.body.iter(_A + "blip", _V + "imagedata")):
            relation = shown.get(R + "embed") or shown.get(R + "id") or ""
            part: Any = self.document.part.related_parts.get(relation)
            anchor = next(shown.iterancestors(W + "p"), None)
            if part is None or anchor is None:
                continue
            name = str(part.partname).rsplit("/", 1)[-1]
            anchor.append(run(self.assembly.mark(Picture(name, part.blob, part.content_type))))

    def _lay_in_notes(self) -> None:
        for reference, (part_name, tag) in _NOTES.items():
            notes = self._notes(part_name, tag)
            for mark in list(self.body.iter(W + reference)):
                note = notes.get(mark.get(W + "id", ""), "")
                anchor = next(mark.iterancestors(W + "p"), None)
                if note and anchor is not None:
                    mark.addprevious(text_element(f"[{mark.get(W + 'id')}]"))
                    self._behind(anchor, f"[{mark.get(W + 'id')}] {note}")

    def _notes(self, part_name: str, tag: str) -> dict[str, str]:
        from docx.oxml import parse_xml

        for relation in self.document.part.rels.values():
            if not relation.is_external and relation.reltype.endswith(f"/{part_name}"):
                root: Any = parse_xml(relation.target_part.blob)
                return {note.get(W + "id", ""): plain(note) for note in root.iter(W + tag)}
        return {}

    def _lay_in_comments(self) -> None:
        comments = {str(comment.comment_id): comment for comment in self.document.comments}
        for mark in list(self.body.iter(W + "commentReference")):
            comment = comments.get(mark.get(W + "id", ""))
            anchor = next(mark.iterancestors(W + "p"), None)
            if comment is not None and comment.text.strip() and anchor is not None:
                self._behind(anchor, f"[Comment by {comment.author or 'unknown'}: {comment.text.strip()}]")

    def _behind(self, anchor: Element, text: str) -> None:
        made = paragraph(text)
        following = anchor
        while (after := following.getnext()) is not None and after.get("note") == "yes":
            following = after  # several notes of a paragraph keep their order
        following.addnext(made)
        made.set("note", "yes")


def _is_margin(relation: Any) -> bool:
    return str(relation.reltype).endswith(("/header", "/footer"))


def _spell_symbols(root: Any) -> None:
    for symbol in list(root.iter(W + "sym")):
        code = symbol.get(W + "char", "")
        number = int(code, 16) if len(code) == 4 and all(c in "0123456789abcdefABCDEF" for c in code) else 0
        if text := _SYMBOLS.get(number, ""):
            symbol.addprevious(text_element(text))


def _lift_boxes(root: Any) -> None:
    """Text boxes become paragraphs behind the one that holds them."""
    for box in list(root.iter(W + "txbxContent")):
        anchor = next(box.iterancestors(W + "p"), None)
        if anchor is None:
            continue
        for block in reversed(list(box)):
            anchor.addnext(block)
