"""Tables of Word files, cell by cell: merged cells in their columns, tables within cells as tables of their own.

They are read here, since `unstructured` flattens what stands in a cell and takes a second for a thousand cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.content.markup import pipe_table
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.content.word_xml import W, drop, paragraph, said
from aps_rag_pipeline.records import Link

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_OPEN, _CLOSE = "\ue0f3", "\ue0f4"
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
#: Says in a cell that its table stands apart.
_APART = "(table below)"
_MAX_SPAN, _MAX_DEPTH = 500, 30

Grid = list[list[str]]


class WordTables:
    """The tables taken out of a body. Where one was, a paragraph with a mark stands for it."""

    def __init__(self) -> None:
        self._found: list[list[str]] = []

    def take(self, body: Any) -> None:
        for table in [table for table in body.iter(W + "tbl") if next(table.iterancestors(W + "tbl"), None) is None]:
            self._take(table, 0)

    def at(self, text: str) -> list[str] | None:
        """The pipe tables for which a paragraph stands, those within its cells behind it; None where it is none."""
        match = _MARK.search(text)
        return self._found[int(match[1])] if match and int(match[1]) < len(self._found) else None

    def _take(self, table: Any, depth: int) -> None:
        cells = [cell for row in _rows(table) for cell in row.iterchildren(W + "tc")]
        if len(cells) == 1 and depth < _MAX_DEPTH:  # a frame around what it holds
            inner = list(cells[0].iterchildren(W + "tbl"))
            _open_frame(table, cells[0])
            for nested in inner:
                self._take(nested, depth + 1)
            return
        apart: list[Grid] = []
        grid = _grid(table, apart, depth)
        self._found.append([text for one in (grid, *apart) if (text := pipe_table(one))])
        table.addprevious(paragraph(f"{_OPEN}{len(self._found) - 1}{_CLOSE}"))
        drop(table)


def table_links(body: Any, targets: dict[str, str]) -> Iterator[Link]:
    """Links in the cells of tables; `targets`: relation -> address."""
    for table in body.iter(W + "tbl"):
        for link in table.iter(W + "hyperlink"):
            address = next(
                (targets[value] for name, value in link.attrib.items() if name.endswith("}id") and value in targets), ""
            )
            if "://" in address:
                yield Link("url", address, clean(said(link)).strip())


def _open_frame(table: Any, cell: Any) -> None:
    for content in list(cell):
        if content.tag == W + "tcPr":
            drop(content)
        else:
            table.addprevious(content)
    drop(table)


def _rows(table: Element) -> Iterator[Element]:
    return table.iterchildren(W + "tr")


def _grid(table: Element, apart: list[Grid], depth: int) -> Grid:
    """Cell texts by row and column. A cell merged downwards is said in each row, one merged across in its first."""
    grid: Grid = []
    for row in _rows(table):
        line = [""] * _number(row.find(f"{W}trPr/{W}gridBefore"), 0)
        for cell in row.iterchildren(W + "tc"):
            merge = cell.find(f"{W}tcPr/{W}vMerge")
            if merge is not None and merge.get(W + "val", "continue") == "continue":
                above = grid[-1] if grid else []
                text = above[len(line)] if len(line) < len(above) else ""
            else:
                text = _cell(cell, apart, depth)
            line += [text] + [""] * (_number(cell.find(f"{W}tcPr/{W}gridSpan"), 1) - 1)
        grid.append(line)
    return grid


def _cell(cell: Element, apart: list[Grid], depth: int) -> str:
    texts: list[str] = []
    for child in cell:
        if child.tag != W + "tbl":
            texts.append("" if str(child.tag).endswith("Pr") else said(child))
            continue
        if depth >= _MAX_DEPTH:
            texts.append(" ".join(piece.text or "" for piece in child.iter(W + "t")))
            continue
        inner: list[Grid] = []
        grid = _grid(child, inner, depth + 1)
        if len(grid) > 1 and max(map(len, grid)) > 1:
            apart.append(grid)
            texts.append(_APART)
        else:
            texts.append(" ".join(text for row in grid for text in row if text))
        apart += inner
    return clean(" ".join(text.strip() for text in texts if text.strip()))


def _number(element: Element | None, default: int) -> int:
    value = element.get(W + "val", "") if element is not None else ""
    return min(int(value), _MAX_SPAN) if value.isascii() and value.isdigit() else default
