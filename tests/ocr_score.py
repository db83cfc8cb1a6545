"""Scores the reading of control screens against what their files write on them; run it to print the table.

A word is a run of three or more letters, digits and `_ . : -`, in lower case, counted once a picture. Recall is the
share of the words of the static texts (`textix`) that were read; precision the share of the words read that are among
them. A screen also draws numbers, titles and axes that are no static text, and these count against precision however
right they are read: `drawn` is the precision over all strings of the screen's file, and without numbers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from PIL import Image

from aps_rag_pipeline.content.ocr import engine, read_image

WHOLE = ("SetpointControl", "StripChart", "TextFonts", "Thermometer")
#: Folders of the pictures: the classic X fonts, and those of another system.
PLATFORMS = ("", "Darwin-arm64")
_WORD = re.compile(r"[a-z0-9_.:\-]{3,}")


class Score(NamedTuple):
    """Words found of those that are there, words read, and identifiers (with a colon inside) found of those there."""

    found: int
    truth: int
    read: int
    drawn: float
    names: int
    names_there: int
    seconds: float

    @property
    def precision(self) -> float:
        return self.found / self.read if self.read else 1.0


def words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def score(folder: Path, screen: str, platform: str, reader: Callable[[Path], str]) -> Score:
    """One picture of `screen` read by `reader`, against the screen's file."""
    source = (folder / f"test_{screen}.adl").read_text()
    truth = words(" ".join(re.findall(r'textix="([^"]*)"', source)))
    strings = words(" ".join(re.findall(r'"([^"]*)"', source)))
    started = perf_counter()
    read = words(reader(folder / "golden" / platform / f"test_{screen}.png"))
    taken = perf_counter() - started
    plain_words = {word for word in read if any(char.isalpha() for char in word)}
    drawn = len(plain_words & strings) / len(plain_words) if plain_words else 1.0
    names = {word for word in truth if re.search(r"\w:\w", word)}
    return Score(len(read & truth), len(truth), len(read), drawn, len(read & names), len(names), taken)


def plain(path: Path) -> str:
    """What Tesseract makes of the picture as it is."""
    with Image.open(path) as image:
        return " ".join(word.text for word in engine.words(image.convert("RGB"), "eng", 3, 120))


def ours(path: Path) -> str:
    return read_image(path.read_bytes()).text


def main(folder: Path) -> None:
    print("picture".ljust(34), *(column.rjust(9) for column in ("words", "precis.", "drawn", "names", "seconds")))
    for platform in PLATFORMS:
        for reader in (plain, ours):
            found = [score(folder, screen, platform, reader) for screen in WHOLE]
            for screen, each in zip(WHOLE, found, strict=True):
                _line(f"{platform or 'X fonts'} {screen} {reader.__name__}", each)
            whole = (sum(column) for column in zip(*found, strict=True))
            there, truth, read, drawn, names, names_there, seconds = whole
            total = Score(int(there), int(truth), int(read), drawn / 4, int(names), int(names_there), seconds)
            _line(f"{platform or 'X fonts'} together {reader.__name__}", total)


def _line(name: str, each: Score) -> None:
    cells = (
        f"{each.found}/{each.truth}",
        f"{each.precision:.2f}",
        f"{each.drawn:.2f}",
        f"{each.names}/{each.names_there}",
        f"{each.seconds:.1f}",
    )
    print(name.ljust(34), *(cell.rjust(9) for cell in cells), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
