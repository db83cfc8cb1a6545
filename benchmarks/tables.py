"""Markdown tables and the figures in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table, the first column left, the others right, and an empty line behind it."""
    ruled = "|" + "|".join(["---", *["--:"] * (len(head) - 1)]) + "|"
    return [_line(head), ruled, *(_line(row) for row in rows), ""]


def number(value: float | None, digits: int = 1) -> str:
    """A figure with thousands apart; a dash for none."""
    return "–" if value is None else f"{value:,.{digits}f}"


def share(part: float | None, whole: float | None, digits: int = 2) -> str:
    return "–" if part is None or not whole else f"{part / whole:,.{digits}f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
