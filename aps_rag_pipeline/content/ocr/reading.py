"""Reading one picture or one page of a PDF."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

import msgspec
from PIL import Image

from aps_rag_pipeline.content.ocr import engine, pictures
from aps_rag_pipeline.content.ocr.engine import OCR_VERSION, Word
from aps_rag_pipeline.content.ocr.repair import repaired
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError

__all__ = ["OCR_VERSION", "OcrResult", "read_image", "read_pdf", "read_pdf_page", "readable"]

#: Called after each frame or page, to say that the work goes on.
Beat = Callable[[], None]

_SCREEN, _PAGE = 11, 3  # Tesseract's segmentation: scattered labels, or columns of prose
_GOOD_ENOUGH = 92.0
#: Least confidence of a word without a letter or digit, of any other, and of a whole picture. Tesseract is unsure of PV
#: names and numbers that it reads right, as of the grain of a photograph: only the whole picture tells them apart.
_SURE_WORD, _WORD, _PICTURE = 60.0, 15.0, 45.0
_IDENTIFIER = re.compile(r"(?=.*[\d:])[\w.:#/\-]{5,}")
#: Median height of words, in pixels of the picture itself, below which it is enlarged further.
_SMALL = 11.0
_PDF_DPI = 300
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
        return _joined(_frames(iter([pdf.picture(page, limits)]), language, limits.ocr_timeout_s, None, _PAGE))


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
                    yield from _frames(iter([pdf.picture(page, limits)]), language, limits.ocr_timeout_s, beat, _PAGE)

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

    def picture(self, page: int, limits: Limits) -> Image.Image:
        """The page as RGB at 300 dots an inch, or fewer where it would be larger than is needed."""
        found = self._page(page)
        width, height = found.get_size()
        if not (0 < width < 1e6 and 0 < height < 1e6):
            raise UnreadableError(f"page {page} has no usable size ({width:g} x {height:g} points)")
        most = min(pictures.MAX_READ_PIXELS, limits.max_pixels)
        scale = min(_PDF_DPI / 72, (most / (width * height)) ** 0.5)
        return pictures.opaque(found.render(scale=scale).to_pil())

    def _page(self, page: int) -> Any:
        import pypdfium2

        if not 1 <= page <= self.pages:
            raise UnreadableError(f"the PDF has {self.pages} pages, page {page} is asked for")
        try:
            return self._document[page - 1]
        except pypdfium2.PdfiumError as error:
            raise UnreadableError(f"page {page} is broken: {error}", remedy="export the PDF anew") from error


def _frames(
    images: Iterator[Image.Image], language: str, timeout: float, beat: Beat | None, layout: int | None = None
) -> Iterator[OcrResult]:
    for image in images:
        yield _read(pictures.shrunk(image), language, timeout, beat or (lambda: None), layout)


def _joined(results: Iterator[OcrResult]) -> OcrResult:
    """Texts one after another; frames that show the same text once."""
    kept: list[OcrResult] = []
    dropped = 0
    for result in results:
        dropped += result.dropped
        if result.text and result.text not in [other.text for other in kept]:
            kept.append(result)
    count = sum(result.words for result in kept)
    confidence = sum(result.confidence * result.words for result in kept) / count if count else 0.0
    return OcrResult("\n\n".join(result.text for result in kept), round(confidence, 1), count, _engine(), dropped)


def _engine() -> str:
    return engine.engine_version() or ""


# -- one frame


def _read(image: Image.Image, language: str, timeout: float, beat: Beat, layout: int | None) -> OcrResult:
    if pictures.is_blank(image):
        return OcrResult("", 0.0, 0, _engine())
    if layout is None:
        layout = _PAGE if _is_page(image) else _SCREEN
    see = partial(engine.words, language=language, layout=layout, timeout=timeout)
    if layout == _PAGE:
        found = see(pictures.enlarged(pictures.dark_on_light(image), 1 if min(image.size) > 1000 else 2))
    else:
        found = see(pictures.enlarged(pictures.contrast_to_ground(image), 2))
        beat()
        # No single preparation wins everywhere: where the first is not sure, the colours as they are get their turn.
        small = bool(found) and statistics.median(word.height for word in found) / 2 < _SMALL
        if small or _mean(found) < _GOOD_ENOUGH:
            other = see(pictures.enlarged(pictures.dark_on_light(image), 3 if small else 2))
            found = max(found, other, key=_score)
    beat()
    return _result(found, layout)


def _is_page(image: Image.Image) -> bool:
    """Whether a picture is a scanned sheet rather than a screen: upright, large and mostly one light ground."""
    if image.height < image.width * 1.2 or image.width < 1000:
        return False
    histogram = image.convert("L").histogram()
    return sum(histogram[200:]) > 0.7 * sum(histogram)


def _mean(words: list[Word]) -> float:
    letters = sum(len(word.text) for word in words)
    return sum(word.confidence * len(word.text) for word in words) / letters if letters else 0.0


def _score(words: list[Word]) -> float:
    return sum(word.confidence * len(word.text) for word in words if word.confidence >= _SURE_WORD)


def _result(found: list[Word], layout: int) -> OcrResult:
    confidence = _mean([word for word in found if _has_letters(word)])
    if confidence < _PICTURE:
        return OcrResult("", round(confidence, 1), 0, _engine(), dropped=len(found))
    kept = [word._replace(text=repaired(word.text)) for word in found if _is_kept(word)]
    lines = _rows(kept) if layout == _SCREEN else _paragraphs(kept)
    return OcrResult("\n".join(lines), round(_mean(kept), 1), len(kept), _engine(), dropped=len(found) - len(kept))


def _has_letters(word: Word) -> bool:
    return any(char.isalnum() for char in word.text)


def _is_kept(word: Word) -> bool:
    if not _has_letters(word):
        return word.confidence >= _SURE_WORD
    return word.confidence >= _WORD or _IDENTIFIER.fullmatch(word.text) is not None


def _paragraphs(words: list[Word]) -> Iterator[str]:
    """Lines in Tesseract's order, an empty one between blocks."""
    block = None
    for place, line in groupby(words, key=lambda word: word.line):
        if block is not None and place[0] != block:
            yield ""
        block = place[0]
        yield " ".join(word.text for word in line)


def _rows(words: list[Word]) -> Iterator[str]:
    """Rows across the whole screen, so that a label and its value stand side by side."""
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.top + word.height / 2):
        middle = word.top + word.height / 2
        last = rows[-1] if rows else []
        if last and middle - statistics.fmean(w.top + w.height / 2 for w in last) < word.height / 2:
            last.append(word)
        else:
            rows.append([word])
    for row in rows:
        yield " ".join(word.text for word in sorted(row, key=lambda word: word.left))
