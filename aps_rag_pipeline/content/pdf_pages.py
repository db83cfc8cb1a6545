"""A PDF page to its lines and tables in reading order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aps_rag_pipeline.content.pdf_grids import ruled_tables
from aps_rag_pipeline.content.pdf_lines import Line, place_of, stretches
from aps_rag_pipeline.content.pdf_order import in_reading_order
from aps_rag_pipeline.content.pdf_rules import read_rules
from aps_rag_pipeline.content.pdf_tables import with_tables
from aps_rag_pipeline.content.pdf_words import read_words

if TYPE_CHECKING:
    import pypdfium2 as pdfium

_LINE = 12.0


@dataclass(slots=True)
class PageText:
    """What a page says. `letters` counts letters and digits; `sound` is false where its fonts give codes instead."""

    lines: list[Line] = field(default_factory=list)
    letters: int = 0
    sound: bool = True


def read_page(page: pdfium.PdfPage) -> PageText:
    """The lines of a page as they are read; what runs in other directions (stamps, axes) comes last.

    The caller holds the lock of PDFium.
    """
    textpage = page.get_textpage()
    try:
        words = read_words(textpage)
    finally:
        textpage.close()
    found = PageText(letters=words.letters, sound=words.sound)
    if words.plain:
        found.lines = _plain_lines(words.plain)
    for number, (turn, turned) in enumerate(words.turns):
        tables, rest = ruled_tables(turned, read_rules(page, turn)) if number == 0 else ([], turned)
        found.lines += with_tables(in_reading_order(stretches(rest) + [place_of(table) for table in tables]))
    return found


def _plain_lines(text: str) -> list[Line]:
    return [
        Line(line, 0.0, 0.0, number * _LINE - 10, number * _LINE + 2, number * _LINE, 10.0)
        for number, line in enumerate(text.split("\n"))
    ]
