"""Tracked changes in Word files: what is left is the text as it reads when all of them are accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.content.word_xml import W, drop, unwrap

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_WRAPPERS = tuple(W + name for name in ("ins", "moveTo", "smartTag", "customXml", "fldSimple", "dir", "bdo"))
_REMOVED = tuple(W + name for name in ("del", "moveFrom", "sdtPr", "sdtEndPr"))


def accept_changes(root: Any) -> None:
    """Accept insertions, deletions and moves, and take away the wrappers that hide text from its readers."""
    _remove_rows(root)
    _join_paragraphs(root)
    for removed in list(root.iter(*_REMOVED)):
        drop(removed)
    _choose(root)
    for wrapper in list(root.iter(*_WRAPPERS)):
        unwrap(wrapper)
    for control in list(root.iter(W + "sdt")):
        content = control.find(W + "sdtContent")
        if content is not None:
            unwrap(content)
        unwrap(control)


def _join_paragraphs(root: Any) -> None:
    """A paragraph whose end was deleted goes on in the next one, and has its form."""
    for first in list(root.iter(W + "p")):
        if first.find(f"{W}pPr/{W}rPr/{W}del") is None:
            continue
        second: Element | None = first.getnext()
        if second is None or second.tag != W + "p":
            continue
        at = 1 if second.find(W + "pPr") is not None else 0
        for piece in reversed([child for child in first if child.tag != W + "pPr"]):
            second.insert(at, piece)
        drop(first)


def _remove_rows(root: Any) -> None:
    for row in list(root.iter(W + "tr")):
        if row.find(f"{W}trPr/{W}del") is not None:
            drop(row)
    for cell in list(root.iter(W + "tc")):
        if cell.find(f"{W}tcPr/{W}cellDel") is not None:  # it leaves its place, so that columns stay
            for content in list(cell):
                drop(content)
    for table in list(root.iter(W + "tbl")):
        if next(table.iter(W + "tr"), None) is None:
            drop(table)


def _choose(root: Any) -> None:
    """Of forms of one thing for older and newer programs, the first."""
    for choice in list(root.iter(_MC + "AlternateContent")):
        branches = [child for child in choice if child.tag == _MC + "Choice"] or list(choice)
        for branch in list(choice):
            if branch is not branches[0]:
                choice.remove(branch)
        if branches:
            unwrap(branches[0])
        unwrap(choice)
