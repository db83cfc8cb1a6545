"""Lines over the number of records on two logarithmic axes, as SVG written by hand: no drawing library is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

#: Label → points (records, value); values above 0.
Lines = Mapping[str, Sequence[tuple[float, float]]]
#: The same while it is gathered.
Points = dict[str, list[tuple[float, float]]]
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 520, 340, 64, 36, 150, 44
_ACROSS = 2
_COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#566573")


def growth(panels: Sequence[tuple[str, str, Lines]]) -> str:
    """One SVG with a panel for each (title, unit, lines) that has a point, two in a row."""
    filled = [panel for panel in panels if any(panel[2].values())]
    drawn = [
        f'<g transform="translate(0 {index // _ACROSS * _HEIGHT})">{_panel(index % _ACROSS * _WIDTH, *panel)}</g>'
        for index, panel in enumerate(filled)
    ]
    across, down = min(max(len(drawn), 1), _ACROSS), -(-max(len(drawn), 1) // _ACROSS)
    size = f'width="{_WIDTH * across}" height="{_HEIGHT * down}"'
    style = 'font-family="sans-serif" font-size="12" fill="#222"'
    body = "\n".join(drawn)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n<rect {size} fill="#fff"/>\n{body}\n</svg>\n'


def _panel(offset: int, title: str, unit: str, lines: Lines) -> str:
    points = [point for some in lines.values() for point in some if point[1] > 0]
    across = _Axis([x for x, _ in points], offset + _LEFT, offset + _WIDTH - _RIGHT)
    up = _Axis([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    parts = [f'<text x="{offset + _LEFT}" y="20" font-size="14">{escape(title)}</text>']
    for value in up.ticks():
        y = up.at(value)
        parts.append(f'<line x1="{across.start}" y1="{y:.1f}" x2="{across.end}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{across.start - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in sorted({x for x, _ in points}):
        x = across.at(value)
        parts.append(f'<line x1="{x:.1f}" y1="{up.end}" x2="{x:.1f}" y2="{up.start}" stroke="#eee"/>')
        parts.append(f'<text x="{x:.1f}" y="{up.start + 16}" text-anchor="middle">{value:,.0f}</text>')
    middle = (across.start + across.end) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">records</text>')
    parts.append(f'<text x="{offset + 8}" y="{_TOP - 2}">{escape(unit)}</text>')
    for number, (label, some) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        placed = [(across.at(x), up.at(y)) for x, y in some if y > 0]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        y = _TOP + 8 + number * 18
        parts.append(f'<rect x="{across.end + 12}" y="{y - 9}" width="12" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{across.end + 28}" y="{y - 3}">{escape(label)}</text>')
    return "\n".join(parts)


class _Axis:
    """A logarithmic scale over whole decades, from `start` to `end` in pixels."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.start, self.end = start, end
        self._low = math.floor(math.log10(min(values)))
        self._high = max(math.ceil(math.log10(max(values))), self._low + 1)

    def at(self, value: float) -> float:
        return self.start + (math.log10(value) - self._low) / (self._high - self._low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]
