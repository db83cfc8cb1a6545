"""WordprocessingML: names of its elements, and small changes to its tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_TEXT, _TABLE = W + "t", W + "tbl"
_SPOKEN = {W + "tab": "\t", W + "br": "\n", W + "cr": "\n", W + "noBreakHyphen": "-", W + "ptab": "\t"}


def text_element(text: str) -> Any:
    from docx.oxml import OxmlElement

    made = OxmlElement("w:t")
    made.text = text
    made.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
    return made


def run(text: str) -> Any:
    from docx.oxml import OxmlElement

    made = OxmlElement("w:r")
    made.append(text_element(text))
    return made


def paragraph(text: str) -> Any:
    from docx.oxml import OxmlElement

    made = OxmlElement("w:p")
    made.append(run(text))
    return made


def said(element: Element) -> str:
    """The text of an element as a reader sees it, without that of tables in it."""
    return "".join(_said(element))


def _said(element: Element) -> Iterator[str]:
    for child in element:
        if child.tag == _TEXT:
            yield child.text or ""
        elif child.tag in _SPOKEN:
            yield _SPOKEN[child.tag]
        elif child.tag != _TABLE and not str(child.tag).endswith("Pr"):
            yield from _said(child)


def plain(element: Element) -> str:
    """The paragraphs of an element in one line."""
    paragraphs = ("".join(piece.text or "" for piece in p.iter(_TEXT)) for p in element.iter(W + "p"))
    return " ".join(text.strip() for text in paragraphs if text.strip())


def unwrap(element: Element) -> None:
    """Put the children of an element in its place."""
    parent = element.getparent()
    if parent is None:
        return
    for child in list(element):
        element.addprevious(child)
    parent.remove(element)


def drop(element: Element) -> None:
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)
