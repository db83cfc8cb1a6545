"""The words of a PDF page with their places, each direction of writing turned upright."""

from __future__ import annotations

import ctypes
import math
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from aps_rag_pipeline.content.text import clean

if TYPE_CHECKING:
    import pypdfium2 as pdfium

#: More letters than any printed page has; of such a page the bare text is kept.
_MAX_LETTERS = 120_000
_HYPHENS = (0x02, 0xFFFE)  # PDFium's marks of a hyphen at a line's end
#: Writing less askew than this is meant to be straight (scanned and recognised pages).
_ASKEW = 12
_ON_LINE = 0.02  # points
_ABOVE, _BELOW = 0.8, 0.22
_BOLD = ("bold", "black", "heavy", "semibold", "demi", "-bd", "cmbx")


@dataclass(slots=True)
class Word:
    """Letters without a space. Points from the left (x) and downwards (y); `base` is the line it stands on."""

    text: str
    x0: float
    x1: float
    base: float
    size: float
    bold: bool = False

    @property
    def y0(self) -> float:
        return self.base - _ABOVE * self.size

    @property
    def y1(self) -> float:
        return self.base + _BELOW * self.size


@dataclass(slots=True)
class PageWords:
    """Words by direction of writing (degrees), the direction with most letters first.

    `sound` is false where the fonts give codes instead of letters. `plain` is set instead of words on a page of too
    many letters.
    """

    turns: list[tuple[int, list[Word]]] = field(default_factory=list)
    letters: int = 0
    sound: bool = True
    plain: str = ""


class _Style(NamedTuple):
    turn: int
    cos: float
    sin: float
    size: float
    bold: bool


class _Letter(NamedTuple):
    char: str
    x0: float
    x1: float
    x: float
    base: float


def read_words(textpage: pdfium.PdfTextPage) -> PageWords:
    """All words that a page shows. The caller holds the lock of PDFium."""
    import pypdfium2.raw as raw

    count = textpage.count_chars()
    codes = [raw.FPDFText_GetUnicode(textpage.raw, index) for index in range(min(count, _MAX_LETTERS + 1))]
    chars, sound = _letters(codes)
    found = PageWords(letters=sum(char.isalnum() for char in chars), sound=sound)
    if not sound:
        return found
    if count > _MAX_LETTERS:
        found.plain = clean(textpage.get_text_range(errors="replace")).strip()
        return found
    words = _Gatherer(textpage).words(chars)
    amount = {turn: sum(len(word.text) for word in turned) for turn, turned in words.items()}
    found.turns = sorted(words.items(), key=lambda item: -amount[item[0]])
    return found


def _letters(codes: list[int]) -> tuple[list[str], bool]:
    """Unicode characters, and whether they are letters: fonts without a character map give codes."""
    chars = ["-" if code in _HYPHENS else chr(code) if code < 0x110000 else "\ufffd" for code in codes]
    shown = [char for char in chars if not char.isspace()]
    swapped = sum(char >= "\u0100" and not ord(char) & 0xFF for char in shown)
    if swapped > 0.6 * len(shown):  # the bytes of each code are swapped
        chars = [chr(ord(char) >> 8) if ord(char) < 0x10000 and not ord(char) & 0xFF else char for char in chars]
        shown = [char for char in chars if not char.isspace()]
    strange = sum(char < " " or char == "\ufffd" or "\ue000" <= char <= "\uf8ff" for char in shown)
    return [_plain(char) for char in chars], strange <= 0.3 * len(shown)


def _plain(char: str) -> str:
    """Ligatures and the shapes of Arabic letters as the letters they show."""
    if "\ufb00" <= char <= "\ufdff" or "\ufe70" <= char <= "\ufefc":
        return unicodedata.normalize("NFKC", char).strip() or char
    return "\ufffd" if "\ud800" <= char <= "\udfff" else char


class _Gatherer:
    """Joins the letters of a page to words."""

    def __init__(self, textpage: pdfium.PdfTextPage) -> None:
        import pypdfium2.raw as raw

        self._textpage = textpage.raw
        self._styles: dict[int | None, _Style] = {}
        self._fonts: dict[int | None, bool] = {}
        self._values = [ctypes.c_double() for _ in range(6)]
        self._places = [ctypes.byref(value) for value in self._values]
        self._get_box, self._get_origin = raw.FPDFText_GetCharBox, raw.FPDFText_GetCharOrigin

    def words(self, chars: list[str]) -> dict[int, list[Word]]:
        words: dict[int, list[Word]] = {}
        gathered: list[_Letter] = []
        style = new = _Style(0, 1.0, 0.0, 10.0, False)
        for index, char in enumerate(chars):
            if char.isspace() or char < " ":
                self._close(gathered, style, words)
                continue
            if not gathered:
                style = new = self._style(index)
            letter = self._letter(index, char, new)
            if gathered and abs(letter.base - gathered[-1].base) > _ON_LINE:
                new = self._style(index)  # asked for here only: it costs more than all else
                letter = self._letter(index, char, new)
            if gathered and not _goes_on(gathered[-1], letter, style, new):
                self._close(gathered, style, words)
                style = new = self._style(index)
                letter = self._letter(index, char, new)
            elif gathered and _is_power(gathered[-1], letter, style, new):
                letter = letter._replace(char="^" + char)
            gathered.append(letter)
        self._close(gathered, style, words)
        return words

    @staticmethod
    def _close(gathered: list[_Letter], style: _Style, words: dict[int, list[Word]]) -> None:
        if not gathered:
            return
        text = "".join([letter.char for letter in gathered])
        if max(text) >= "\u0590":
            text = clean("".join(_in_writing_order(gathered))).strip()
        if text:
            x0, x1 = min([letter.x0 for letter in gathered]), max([letter.x1 for letter in gathered])
            words.setdefault(style.turn, []).append(Word(text, x0, x1, gathered[0].base, style.size, style.bold))
        gathered.clear()

    def _letter(self, index: int, char: str, style: _Style) -> _Letter:
        self._get_box(self._textpage, index, *self._places[:4])
        self._get_origin(self._textpage, index, *self._places[4:])
        left, right, bottom, top, x, y = [value.value for value in self._values]
        if style.turn == 0:
            return _Letter(char, left, right, x, -y)
        cos, sin = style.cos, style.sin
        ends = (left * cos + bottom * sin, right * cos + top * sin, left * cos + top * sin, right * cos + bottom * sin)
        return _Letter(char, min(ends), max(ends), x * cos + y * sin, x * sin - y * cos)

    def _style(self, index: int) -> _Style:
        import pypdfium2.raw as raw

        shown = raw.FPDFText_GetTextObject(self._textpage, index)
        key = ctypes.cast(shown, ctypes.c_void_p).value
        if key in self._styles:
            return self._styles[key]
        matrix = raw.FS_MATRIX()
        raw.FPDFText_GetMatrix(self._textpage, index, matrix)
        size = raw.FPDFText_GetFontSize(self._textpage, index) * (math.hypot(matrix.c, matrix.d) or 1)
        turn = round(math.degrees(math.atan2(matrix.b, matrix.a))) % 360
        straight = round(turn / 90) * 90
        turn = straight % 360 if abs(turn - straight) <= _ASKEW else turn
        angle = math.radians(turn)
        size = size if 0.5 < size < 1000 else 10.0
        style = _Style(turn, round(math.cos(angle), 9), round(math.sin(angle), 9), size, self._is_bold(shown, index))
        self._styles[key] = style
        return style

    def _is_bold(self, shown: object, index: int) -> bool:
        import pypdfium2.raw as raw

        font = raw.FPDFTextObj_GetFont(shown) if shown else None
        key = ctypes.cast(font, ctypes.c_void_p).value if font else None
        if key not in self._fonts:
            name = ctypes.create_string_buffer(256)
            if font:
                raw.FPDFFont_GetBaseFontName(font, name, 256)
            says = name.value.decode("utf-8", "replace").lower()
            heavy = raw.FPDFText_GetFontWeight(self._textpage, index) >= 600
            self._fonts[key] = heavy or any(word in says for word in _BOLD)
        return self._fonts[key]


def _goes_on(last: _Letter, letter: _Letter, style: _Style, new: _Style) -> bool:
    """Whether a letter belongs to the word before it: the same direction, and close by on either side."""
    size = max(style.size, new.size)
    if style.turn != new.turn or abs(letter.base - last.base) > 0.55 * size:
        return False
    return letter.x0 - last.x1 < 0.7 * size and last.x0 - letter.x1 < 0.7 * size


def _in_writing_order(letters: list[_Letter]) -> Iterator[str]:
    """Their characters. Several of one glyph come reversed where the writing runs leftwards."""
    for _, glyph in groupby(letters, key=lambda letter: (letter.x0, letter.x1, letter.x)):
        chars = [letter.char for letter in glyph]
        yield from reversed(chars) if len(chars) > 1 and any("\u0590" <= char <= "\u08ff" for char in chars) else chars


def _is_power(last: _Letter, letter: _Letter, style: _Style, new: _Style) -> bool:
    """A small raised number behind a digit: ten to the fifth must not be read as 105."""
    if not (last.char.isdigit() and (letter.char.isdigit() or letter.char in "-\u2212")):
        return False
    return new.size < 0.85 * style.size and 0.2 * style.size < last.base - letter.base
