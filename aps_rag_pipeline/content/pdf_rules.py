"""The straight lines drawn on a PDF page: rules of tables, edges of filled cells."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from typing import NamedTuple

#: Drawings of more pieces are maps and plots, not tables.
_MAX_SEGMENTS = 6000
_MAX_OBJECTS = 30_000
_MAX_DEPTH = 4
_THIN = 2.5  # points: a filled box as thin as this is a line
_SHORT = 4.0
_NEAR = 1.6
_TOUCH = 3.0

Matrix = tuple[float, float, float, float, float, float]
Point = tuple[float, float]


class Rule(NamedTuple):
    """A horizontal or vertical line: `at` is where it stands, `start` to `end` how far it goes."""

    at: float
    start: float
    end: float


@dataclass(slots=True)
class Rules:
    """Lines of a page in the places of its words: points from the left and downwards."""

    level: list[Rule] = field(default_factory=list)
    upright: list[Rule] = field(default_factory=list)


def read_rules(page: object, turn: int) -> Rules:
    """The lines of a page whose writing runs at `turn` degrees; none where it is not upright or lying."""
    rules = Rules()
    if turn % 90:
        return rules
    pen = _Pen(turn, rules)
    pen.draw_page(page)
    return Rules(_merged(rules.level), _merged(rules.upright)) if pen.left > 0 else Rules()


class _Pen:
    """Follows the drawing operators of a page."""

    def __init__(self, turn: int, rules: Rules) -> None:
        angle = math.radians(turn)
        self._cos, self._sin = round(math.cos(angle)), round(math.sin(angle))
        self._rules = rules
        self.left = _MAX_SEGMENTS
        self._objects = _MAX_OBJECTS

    def draw_page(self, page: object) -> None:
        import pypdfium2.raw as raw

        for index in range(min(raw.FPDFPage_CountObjects(page), _MAX_OBJECTS)):
            self._draw(raw.FPDFPage_GetObject(page, index), (1, 0, 0, 1, 0, 0), 0)

    def _draw(self, item: object, outer: Matrix, depth: int) -> None:
        import pypdfium2.raw as raw

        self._objects -= 1
        if self.left <= 0 or self._objects <= 0:
            return
        kind = raw.FPDFPageObj_GetType(item)
        if kind == raw.FPDF_PAGEOBJ_FORM and depth < _MAX_DEPTH:
            matrix = _product(_matrix(item), outer)
            for index in range(min(raw.FPDFFormObj_CountObjects(item), _MAX_OBJECTS)):
                self._draw(raw.FPDFFormObj_GetObject(item, index), matrix, depth + 1)
        elif kind == raw.FPDF_PAGEOBJ_PATH:
            self._path(item, outer)

    def _path(self, item: object, outer: Matrix) -> None:
        import pypdfium2.raw as raw

        count = raw.FPDFPath_CountSegments(item)
        self.left -= count
        fill, stroke = ctypes.c_int(), ctypes.c_int()
        raw.FPDFPath_GetDrawMode(item, fill, stroke)
        if self.left <= 0 or count < 2 or not (fill.value or stroke.value):
            return
        for corners, closed in _figures(item, count, _product(_matrix(item), outer)):
            turned = [self._turned(corner) for corner in corners]
            self._figure(turned, closed or bool(fill.value))

    def _turned(self, point: Point) -> Point:
        x, y = point
        return x * self._cos + y * self._sin, x * self._sin - y * self._cos

    def _figure(self, corners: list[Point], closed: bool) -> None:
        xs, ys = [x for x, _ in corners], [y for _, y in corners]
        low, high, top, bottom = min(xs), max(xs), min(ys), max(ys)
        if closed and len(corners) > 2 and min(high - low, bottom - top) < _THIN:
            self._line((low, (top + bottom) / 2), (high, (top + bottom) / 2))
            self._line(((low + high) / 2, top), ((low + high) / 2, bottom))
            return
        ends = [*corners[1:], corners[0]] if closed else corners[1:]
        for start, end in zip(corners, ends, strict=False):
            self._line(start, end)

    def _line(self, start: Point, end: Point) -> None:
        (x0, y0), (x1, y1) = start, end
        if abs(y1 - y0) < 1 and abs(x1 - x0) >= _SHORT:
            self._rules.level.append(Rule((y0 + y1) / 2, min(x0, x1), max(x0, x1)))
        elif abs(x1 - x0) < 1 and abs(y1 - y0) >= _SHORT:
            self._rules.upright.append(Rule((x0 + x1) / 2, min(y0, y1), max(y0, y1)))


def _figures(item: object, count: int, matrix: Matrix) -> list[tuple[list[Point], bool]]:
    """The straight figures of a path: their corners on the page, and whether they are closed. Curves part them."""
    import pypdfium2.raw as raw

    a, b, c, d, e, f = matrix
    x, y = ctypes.c_float(), ctypes.c_float()
    figures: list[tuple[list[Point], bool]] = []
    corners: list[Point] = []
    for index in range(count):
        segment = raw.FPDFPath_GetPathSegment(item, index)
        kind = raw.FPDFPathSegment_GetType(segment)
        raw.FPDFPathSegment_GetPoint(segment, x, y)
        if kind != raw.FPDF_SEGMENT_LINETO:
            if len(corners) > 1:
                figures.append((corners, False))
            corners = []
        corners.append((a * x.value + c * y.value + e, b * x.value + d * y.value + f))
        if raw.FPDFPathSegment_GetClose(segment) and len(corners) > 1:
            figures.append((corners, True))
            corners = []
    if len(corners) > 1:
        figures.append((corners, False))
    return figures


def _matrix(item: object) -> Matrix:
    import pypdfium2.raw as raw

    found = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(item, found)
    return found.a, found.b, found.c, found.d, found.e, found.f


def _product(inner: Matrix, outer: Matrix) -> Matrix:
    a, b, c, d, e, f = inner
    g, h, i, j, k, m = outer
    return a * g + b * i, a * h + b * j, c * g + d * i, c * h + d * j, e * g + f * i + k, e * h + f * j + m


def _merged(rules: list[Rule]) -> list[Rule]:
    """Lines drawn in pieces or twice, as one."""
    found: list[Rule] = []
    at = float("-inf")
    group: list[Rule] = []
    for rule in sorted(rules):
        if rule.at - at > _NEAR:
            found += _chained(group)
            group, at = [], rule.at
        group.append(rule)
    return [*found, *_chained(group)]


def _chained(group: list[Rule]) -> list[Rule]:
    chains: list[list[Rule]] = []
    reach = float("-inf")
    for rule in sorted(group, key=lambda rule: rule.start):
        if rule.start - reach > _TOUCH:
            chains.append([])
        chains[-1].append(rule)
        reach = max(reach, rule.end) if len(chains[-1]) > 1 else rule.end
    return [
        Rule(sum(rule.at for rule in chain) / len(chain), chain[0].start, max(rule.end for rule in chain))
        for chain in chains
    ]
