"""Reading one picture or one page of a PDF."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, groupby
from typing import Any

import msgspec
from PIL import Image
from PIL.Image import Resampling

from aps_rag_pipeline.content.ocr import engine, ground, merging, pictures
from aps_rag_pipeline.content.ocr.engine import OCR_VERSION, Word
from aps_rag_pipeline.content.ocr.frames import Frame
from aps_rag_pipeline.content.ocr.repair import spaced
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError

__all__ = ["OCR_VERSION", "OcrResult", "read_image", "read_pdf", "read_pdf_page", "readable"]

#: Called after each frame or page, to say that the work goes on.
Beat = Callable[[], None]
#: One call of Tesseract.
See = Callable[[Image.Image], list[Word]]

_LAYOUT = 3  # Tesseract's own search for columns and lines
#: How much a screen is enlarged; more where the median height of its words, in pixels, is small.
_ENLARGED, _ENLARGED_MORE, _SMALL = 2, 3, 12.0
#: Least confidence of a word without a letter or digit, of a word of a sheet or an identifier, and of a whole picture.
#: Tesseract is unsure of PV names that it reads right, as of the grain of a photograph: only the whole picture tells.
_SURE_WORD, _WORD, _PICTURE = 60.0, 15.0, 45.0
#: Of a word of a screen that was found as it is and enlarged; that two enlarged readings say; that one alone found.
_SHARED, _AGREED, _ALONE = 50.0, 60.0, 75.0
#: Below this height, in pixels, letters run into one another: of a word in such type that one reading alone found.
_TINY, _TINY_ALONE = 9, 90.0
#: A number or time as it is written; another run of digits is a misread one.
_NUMBER = re.compile(r"(?:[+-]?\d[\d.,]*%?|\d+([:/\-])\d+(?:\1\d+)?)[:;.,]?")
#: A screen of which Tesseract sees less than one word in so many without help is read once more.
_HELPLESS = 4
_IDENTIFIER = re.compile(r"(?=.*[A-Za-z])[\w.#/\-]+(?:[:;][\w.#/\-]+)+")
_PDF_DPI = 300
_SMALLER = "make the picture smaller"
#: Drawings without pixels.
_DRAWINGS = frozenset({"image/svg+xml", "image/emf", "image/x-emf", "image/wmf", "image/x-wmf"})
_TEXT_LAYER = 20


class OcrResult(msgspec.Struct, frozen=True):
    """What was read. `confidence` is the mean of the words kept, 0..100; `dropped` counts those too unsure to keep."""

    text: str
    confidence: float
    words: int
    engine: str
    dropped: int = 0


def readable(media_type: str) -> bool:
    """Whether a file of this type may hold text that can be read here."""
    kind = media_type.split(";")[0].strip().lower()
    return kind == "application/pdf" or (kind.startswith("image/") and kind not in _DRAWINGS)


def read_image(data: bytes, language: str = "eng", limits: Limits | None = None, beat: Beat | None = None) -> OcrResult:
    """The text of a picture, of all pages of a TIFF, of the distinct frames of an animation.

    Raises:
        UnreadableError: no picture, too large, broken, or no Tesseract for the language.
    """
    limits = limits or Limits()
    engine.demand(language)
    return _joined(_frames(pictures.open_frames(data, limits), language, limits.ocr_timeout_s, beat))


def read_pdf_page(data: bytes, page: int, language: str = "eng", limits: Limits | None = None) -> OcrResult:
    """The text of one page (1-based), read from its picture.

    Raises:
        UnreadableError: no such page, a broken or protected file, or no Tesseract for the language.
    """
    limits = limits or Limits()
    engine.demand(language)
    with _Pdf(data) as pdf:
        return _joined(_frames([pdf.picture(page, limits)], language, limits.ocr_timeout_s, None, page=True))


def read_pdf(data: bytes, language: str = "eng", limits: Limits | None = None, beat: Beat | None = None) -> OcrResult:
    """The text of all pages: from the text layer where a page has one, else from its picture.

    Raises:
        UnreadableError: a broken or protected file, too many pages, or no Tesseract for the language.
    """
    limits = limits or Limits()
    engine.demand(language)
    with _Pdf(data) as pdf:
        if pdf.pages > limits.max_pages:
            raise UnreadableError(f"the PDF has {pdf.pages} pages, the limit is {limits.max_pages}")

        def results() -> Iterator[OcrResult]:
            for page in range(1, pdf.pages + 1):
                layer = pdf.text(page)
                if len(layer) >= _TEXT_LAYER:
                    yield OcrResult(layer, 100.0, len(layer.split()), _engine())
                    if beat is not None:
                        beat()
                else:
                    yield from _frames([pdf.picture(page, limits)], language, limits.ocr_timeout_s, beat, page=True)

        return _joined(results())


class _Pdf:
    """A PDF opened by pdfium."""

    def __init__(self, data: bytes) -> None:
        import pypdfium2

        try:
            self._document = pypdfium2.PdfDocument(data)
            self.pages = len(self._document)
        except pypdfium2.PdfiumError as error:
            remedy = "store it without a password" if "password" in str(error).lower() else "export it anew"
            raise UnreadableError(f"the PDF cannot be opened: {error}", remedy=remedy) from error

    def __enter__(self) -> _Pdf:
        return self

    def __exit__(self, *_: object) -> None:
        self._document.close()

    def text(self, page: int) -> str:
        return str(self._page(page).get_textpage().get_text_bounded()).replace("\r\n", "\n").strip()

    def picture(self, page: int, limits: Limits) -> Frame:
        """The page at 300 dots an inch, or fewer where it would be larger than is needed."""
        found = self._page(page)
        width, height = found.get_size()
        if not (0 < width < 1e6 and 0 < height < 1e6):
            raise UnreadableError(f"page {page} has no usable size ({width:g} x {height:g} points)")
        most = min(pictures.MAX_READ_PIXELS, limits.max_pixels)
        scale = min(_PDF_DPI / 72, (most / (width * height)) ** 0.5)
        return Frame(found.render(scale=scale).to_pil())

    def _page(self, page: int) -> Any:
        import pypdfium2

        if not 1 <= page <= self.pages:
            raise UnreadableError(f"the PDF has {self.pages} pages, page {page} is asked for")
        try:
            return self._document[page - 1]
        except pypdfium2.PdfiumError as error:
            raise UnreadableError(f"page {page} is broken: {error}", remedy="export the PDF anew") from error


def _frames(
    frames: Iterable[Frame], language: str, timeout: float, beat: Beat | None, page: bool = False
) -> Iterator[OcrResult]:
    for frame in frames:
        try:
            result = _read(frame, language, timeout, beat or (lambda: None), page=page or frame.is_page)
        except MemoryError as error:
            raise UnreadableError("reading the picture needs more memory than it may take", remedy=_SMALLER) from error
        yield result


def _joined(results: Iterator[OcrResult]) -> OcrResult:
    """Texts one after another; frames that show the same text once."""
    kept: list[OcrResult] = []
    dropped = 0
    for result in results:
        dropped += result.dropped
        if result.text and result.text not in [other.text for other in kept]:
            kept.append(result)
    words = sum(result.words for result in kept)
    confidence = sum(result.confidence * result.words for result in kept) / words if words else 0.0
    return OcrResult("\n\n".join(result.text for result in kept), round(confidence, 1), words, _engine(), dropped)


def _engine() -> str:
    return engine.engine_version() or ""


# -- one frame


def _read(frame: Frame, language: str, timeout: float, beat: Beat, page: bool) -> OcrResult:
    see = partial(engine.words, language=language, layout=_LAYOUT, timeout=timeout)
    kept: list[Word] = []
    sure: list[Word] = []
    dropped = 0
    numbers = count()
    for left, top, piece in frame.pieces():
        found, kept_here = _of_piece(piece, page, see, beat)
        del piece  # before the next one is made
        sure += [word for word in found if _has_letters(word)]
        dropped += len(found) - len(kept_here)
        number = next(numbers)
        kept += [word.moved(left, top, number) for word in kept_here]
    confidence = merging.mean(sure)
    if confidence < _PICTURE:
        return OcrResult("", round(confidence, 1), 0, _engine(), dropped=dropped + len(kept))
    lines = _paragraphs(kept) if page else (_said(row) for row in merging.rows(kept))
    return OcrResult("\n".join(lines), round(merging.mean(kept), 1), len(kept), _engine(), dropped)


def _of_piece(image: Image.Image, page: bool, see: See, beat: Beat) -> tuple[list[Word], list[Word]]:
    if pictures.is_blank(image):
        return [], []
    image = pictures.framed(image)
    found = _of_page(image, see) if page else _of_screen(image, see, beat)
    beat()
    return found


def _of_page(image: Image.Image, see: See) -> tuple[list[Word], list[Word]]:
    """All words of a sheet in reading order, and those to keep."""
    found = see(pictures.enlarged(pictures.dark_on_light(image), 1 if min(image.size) > 1000 else 2))
    return found, [word for word in found if _is_kept(word, _WORD)]


def _of_screen(image: Image.Image, see: See, beat: Beat) -> tuple[list[Word], list[Word]]:
    """All words of a screen, and those to keep: no single preparation reads every colour and font best."""
    plain = see(image)
    beat()
    grey, dots = ground.standing_out(image)
    small = not plain or statistics.median(word.height for word in plain) < _SMALL
    readings = [plain, _enlarged(grey, see, _ENLARGED_MORE if small else _ENLARGED)]
    if len(plain) * _HELPLESS < len(readings[1]):
        beat()
        readings.append(_enlarged(grey, see, _ENLARGED, Resampling.BICUBIC))
    places = merging.merged([[ground.pointed(word, dots) for word in words] for words in readings])
    found = [word for place in places for word in place.words]
    return found, [word for place in places for word in place.words if word.confidence >= _least(word, place)]


def _enlarged(grey: Image.Image, see: See, factor: int, smooth: Resampling = Resampling.LANCZOS) -> list[Word]:
    large = pictures.enlarged(grey, factor, smooth)
    return merging.scaled(see(large), large.width / grey.width)


def _has_letters(word: Word) -> bool:
    return any(char.isalnum() for char in word.text)


def _is_kept(word: Word, least: float) -> bool:
    if not _has_letters(word):
        return word.confidence >= _SURE_WORD
    return word.confidence >= (_WORD if _IDENTIFIER.fullmatch(word.text) else least)


def _least(word: Word, place: merging.Place) -> float:
    """The confidence from which on a word of a screen is kept.

    A wrong letter shows in a word, a wrong digit does not: Tesseract is as sure of it as of a right one. So a number
    in a tiny type needs two readings that say it.
    """
    if not _has_letters(word):
        return _SURE_WORD
    if _IDENTIFIER.fullmatch(word.text):
        return _WORD
    if 0 in place.seen_by and len(place.seen_by) > 1:
        return _SHARED
    if place.agreed:
        return _AGREED
    is_number = not any(char.isalpha() for char in word.text)
    if is_number and (word.height < _TINY or not _NUMBER.fullmatch(word.text)):
        return math.inf
    return _TINY_ALONE if word.height < _TINY else _ALONE


def _paragraphs(words: list[Word]) -> Iterator[str]:
    """Lines in Tesseract's order, an empty one between blocks."""
    block = None
    for place, line in groupby(words, key=lambda word: word.line):
        if block is not None and place[0] != block:
            yield ""
        block = place[0]
        yield " ".join(word.text for word in line)  # a sheet's `4.2A` may be a section


def _said(words: list[Word]) -> str:
    """A row of a screen."""
    return " ".join(spaced(word.text) for word in words)
