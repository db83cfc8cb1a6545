"""The order in which a page is read: columns one after the other, between what runs across them."""

from __future__ import annotations

from typing import NamedTuple

from aps_rag_pipeline.content.pdf_lines import Line, Stretch, lines_of

_STEP = 2.0  # points
_MAX_STEPS = 2000
_TRIED = 8
_MAX_DEPTH = 8
#: Most text of a column is in lines of at least this share of the longest and this many words; cells are shorter.
_FILL, _WORDS = 0.5, 2.0
#: Sticking out of a column by less is not running across.
_OUT = 9.0


class _Band(NamedTuple):
    left: list[Stretch]
    right: list[Stretch]
    across: list[Stretch]


def in_reading_order(stretches: list[Stretch]) -> list[Line]:
    """The lines of a page as they are read."""
    return [line for region in _regions(stretches, 0) for line in lines_of(region)]


def _regions(stretches: list[Stretch], depth: int) -> list[list[Stretch]]:
    if len(stretches) < 6 or depth > _MAX_DEPTH:
        return [stretches] if stretches else []
    bands = _best(stretches)
    if bands is None:
        return [stretches]
    found: list[list[Stretch]] = []
    for band in bands:
        if band.across:
            found += _regions(band.across, depth + 1)
        elif band.left and band.right:
            found += [*_regions(band.left, depth + 1), *_regions(band.right, depth + 1)]
        else:
            found += _regions(band.left or band.right, depth + 1)
    return found


def _best(stretches: list[Stretch]) -> list[_Band] | None:
    """The bands of the gap between columns that parts most of the page; None where there are no columns."""
    best: tuple[float, list[_Band]] | None = None
    for x in _gaps(stretches):
        bands = _bands(stretches, x)
        score = _score(bands)
        if score > 0 and (best is None or score > best[0]):
            best = score, bands
    return best[1] if best else None


def _gaps(stretches: list[Stretch]) -> list[float]:
    """Places that few stretches run across, the emptiest first."""
    low, end = min(s.x0 for s in stretches), max(s.x1 for s in stretches)
    step = max(_STEP, (end - low) / _MAX_STEPS)
    count = int((end - low) / step) + 2
    change = [0] * (count + 1)
    for stretch in stretches:
        high = int(4 * (stretch.y1 - stretch.y0)) + 1  # a foot between columns weighs less than a table beside them
        change[int((stretch.x0 - low) / step)] += high
        change[int((stretch.x1 - low) / step) + 1] -= high
    cover, covered = [], 0
    for value in change[:count]:
        covered += value
        cover.append(covered)
    runs: list[tuple[int, int, float]] = []
    start = 0
    for index in range(1, count + 1):
        if index == count or cover[index] != cover[start]:
            inner = start > 0 and index < count
            lowest = inner and cover[start - 1] > cover[start] < cover[index]
            if lowest:
                runs.append((cover[start], start - index, low + step * (start + index) / 2))
            start = index
    return [x for _, _, x in sorted(runs)[:_TRIED]]


def _bands(stretches: list[Stretch], x: float) -> list[_Band]:
    """What is left and right of a gap, from the top, parted by what runs across it."""
    bands: list[_Band] = []
    for stretch in sorted(stretches, key=lambda s: s.y0):
        across = stretch.x0 < x - _OUT and stretch.x1 > x + _OUT
        if not bands or bool(bands[-1].across) != across:
            bands.append(_Band([], [], []))
        if across:
            bands[-1].across.append(stretch)
        elif stretch.x0 + stretch.x1 < 2 * x:
            bands[-1].left.append(stretch)
        else:
            bands[-1].right.append(stretch)
    return bands


def _score(bands: list[_Band]) -> float:
    """Height over which there is text on both sides; 0 where it is not running text in columns."""
    beside = [band for band in bands if band.left and band.right]
    left = [stretch for band in beside for stretch in band.left]
    right = [stretch for band in beside for stretch in band.right]
    if not (left and right) or min(s.x0 for s in right) - max(s.x1 for s in left) < -_OUT:
        return 0.0
    more, fewer = sorted((_heights(left), _heights(right)), reverse=True)
    if more < 3 or (fewer < 3 and more < 8) or not (_flows(left) and _flows(right)):
        return 0.0
    return sum(
        max(0.0, min(_bottom(band.left), _bottom(band.right)) - max(_top(band.left), _top(band.right)))
        for band in beside
    )


def _top(stretches: list[Stretch]) -> float:
    return min(s.y0 for s in stretches)


def _bottom(stretches: list[Stretch]) -> float:
    return max(s.y1 for s in stretches)


def _heights(stretches: list[Stretch]) -> int:
    """How many lines the stretches stand on."""
    count, last = 0, float("-inf")
    for base in sorted(s.base for s in stretches):
        if base - last > 3:
            count, last = count + 1, base
    return count


def _flows(stretches: list[Stretch]) -> bool:
    """Whether most of this is running text rather than cells or labels; beside text, a table may fill a column."""
    texts = sorted((s for s in stretches if not s.table), key=lambda s: s.width)
    if not texts:
        return True
    total = sum(s.width for s in texts)
    if sum(_real_words(s) * s.width for s in texts) < _WORDS * total:
        return False
    passed, widest = 0.0, texts[int(0.9 * (len(texts) - 1))].width
    for stretch in texts:
        passed += stretch.width
        if 2 * passed >= total:
            return stretch.width >= _FILL * widest
    return False


def _real_words(stretch: Stretch) -> float:
    """Words of a stretch that are no numbers or codes of two signs; about two signs of Chinese are a word."""
    dense = sum("\u2e80" <= char <= "\ud7ff" for word in stretch.words for char in word.text)
    return dense / 2 + sum(sum(char.isalpha() for char in word.text) > 2 for word in stretch.words)
