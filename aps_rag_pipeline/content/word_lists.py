"""Numbers of lists in Word files: Word counts them when it shows a file, they stand nowhere in it."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from aps_rag_pipeline.content.word_xml import W, run, said

if TYPE_CHECKING:
    from docx.document import Document

_PLACE = re.compile(r"%(\d)")
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"))
_ROMAN_ONES = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
_MAX_BASES, _MAX_COUNT = 20, 100_000
_NO = ("0", "false", "off")
#: What a paragraph without text may show.
_SHOWN = (W + "drawing", W + "pict", W + "object", "{http://schemas.openxmlformats.org/officeDocument/2006/math}oMath")


class _Level(NamedTuple):
    """A level of a list: what it begins with, whether that holds for this use of the list alone, and how it looks.

    `legal` spells its numbers and those above it as 1, 2, 3; it begins anew behind items of the first `behind` levels.
    """

    start: int
    anew: bool
    kind: str
    text: str
    style: str
    legal: bool
    behind: int


class _Numbering(NamedTuple):
    """What a paragraph or a style says of its list; empty or negative where nothing."""

    list: str
    level: int


class ListNumbers:
    """The lists of a document, counted from its beginning."""

    def __init__(self, document: Document) -> None:
        self._lists: dict[str, tuple[str, dict[int, _Level]]] = {}
        numbering = next(
            (one.target_part for one in document.part.rels.values() if not one.is_external and _is_numbering(one)), None
        )
        self._root = None if numbering is None else _root(numbering)
        self._styles = {style.get(W + "styleId", ""): style for style in document.styles.element.iter(W + "style")}
        if self._root is not None:
            self._lists = _lists(self._root, self._styles)
        self._counts: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._begun: set[tuple[str, int]] = set()

    def lay_in(self, body: Any) -> None:
        """Put the number of each list item before its text, and take it out of the lists so that it is said once.

        All are counted here: `unstructured` sees the items outside of tables alone, and those in frames as well.
        """
        if self._root is None:
            return
        for item in body.iter(W + "p"):
            label = "" if _is_section_end(item) else self._label(item)
            if label and (_is_filled(item) or _is_in_table(item)):
                properties = item.find(W + "pPr")
                if properties is None:
                    item.insert(0, run(label + " "))
                else:
                    properties.addnext(run(label + " "))
        for look in self._root.iter(W + "lvlText"):
            look.set(W + "val", "")

    def _label(self, item: Any) -> str:
        numbering, style = self._numbering(item)
        if numbering.list not in self._lists:
            return ""
        kind, levels = self._lists[numbering.list]
        depth = numbering.level
        if depth < 0:
            depth = next((number for number, level in levels.items() if style and level.style == style), 0)
        if depth not in levels:
            return ""
        counts, level = self._counts[kind], levels[depth]
        if depth not in counts or (level.anew and (numbering.list, depth) not in self._begun):
            counts[depth] = level.start
        else:
            counts[depth] += 1
        self._begun.add((numbering.list, depth))
        for deeper in [number for number in counts if number > depth]:
            if deeper not in levels or depth < levels[deeper].behind:
                del counts[deeper]
        if level.kind in ("bullet", "none"):
            return ""

        def counted(place: re.Match[str]) -> str:
            number = int(place[1]) - 1
            if number not in levels:
                return ""
            return _spelt(counts.get(number, levels[number].start), "decimal" if level.legal else levels[number].kind)

        return _PLACE.sub(counted, level.text).strip()

    def _numbering(self, item: Any) -> tuple[_Numbering, str]:
        """What a paragraph says of its list or else its style, and the style that says it."""
        own = _stated(item)
        named = item.find(f"{W}pPr/{W}pStyle")
        style, level = "" if named is None else named.get(W + "val", ""), own.level
        if own.list:
            return own, ""
        for _ in range(_MAX_BASES):
            if style not in self._styles:
                break
            found = _stated(self._styles[style])
            level = found.level if level < 0 else level
            if found.list:
                return _Numbering(found.list, level), style
            base = self._styles[style].find(W + "basedOn")
            style = "" if base is None else base.get(W + "val", "")
        return _Numbering("", level), ""


def _is_filled(item: Any) -> bool:
    return bool(said(item).strip()) or next(item.iter(*_SHOWN), None) is not None


def _is_section_end(item: Any) -> bool:
    """Word does not count an empty paragraph that only ends a section."""
    return item.find(f"{W}pPr/{W}sectPr") is not None and not _is_filled(item)


def _is_in_table(item: Any) -> bool:
    """Whether it stands in a table of several cells: with one it is a frame around text."""
    return any(next(islice(table.iter(W + "tc"), 1, None), None) is not None for table in item.iterancestors(W + "tbl"))


def _is_numbering(relation: Any) -> bool:
    return str(relation.reltype).endswith("/numbering")


def _root(part: Any) -> Any:
    from docx.oxml import parse_xml

    return part.element if hasattr(part, "element") else parse_xml(part.blob)


def _lists(root: Any, styles: dict[str, Any]) -> dict[str, tuple[str, dict[int, _Level]]]:
    """By the number of a list: the kind that it is of, and its levels."""
    kinds = {kind.get(W + "abstractNumId", ""): kind for kind in root.iterchildren(W + "abstractNum")}
    found = {}
    for one in root.iterchildren(W + "num"):
        kind = _defined(_value(one, "abstractNumId"), kinds, root, styles)
        if kind not in kinds:
            continue
        levels = {_number(level.get(W + "ilvl")): _level(level) for level in kinds[kind].iterchildren(W + "lvl")}
        for change in one.iterchildren(W + "lvlOverride"):
            depth, other = _number(change.get(W + "ilvl")), change.find(W + "lvl")
            if other is not None:
                levels[depth] = _level(other)
            start = _value(change, "startOverride")
            if start and depth in levels:
                levels[depth] = levels[depth]._replace(start=_number(start), anew=True)
        found[one.get(W + "numId", "")] = (kind, levels)
    found.pop("0", None)  # says that a paragraph is in no list
    return found


def _defined(kind: str, kinds: dict[str, Any], root: Any, styles: dict[str, Any]) -> str:
    """The kind of list that defines the levels: one may only name the list style that another is made for."""
    for _ in range(_MAX_BASES):
        style = "" if kind not in kinds else _value(kinds[kind], "numStyleLink")
        if not style:
            break
        made_for = (number for number, other in kinds.items() if _value(other, "styleLink") == style)
        stated = _stated(styles[style]).list if style in styles else ""
        used = (_value(one, "abstractNumId") for one in root.iterchildren(W + "num") if one.get(W + "numId") == stated)
        kind = next(chain(made_for, used), "")
    return kind


def _level(level: Any) -> _Level:
    start, behind = _value(level, "start"), _value(level, "lvlRestart")
    kind, text = _value(level, "numFmt") or "decimal", _value(level, "lvlText")
    legal = level.find(W + "isLgl")
    return _Level(
        start=_number(start) if start else 1,
        anew=False,
        kind=kind,
        text=text,
        style=_value(level, "pStyle"),
        legal=legal is not None and legal.get(W + "val", "1") not in _NO,
        behind=_number(behind) if behind else _MAX_COUNT,
    )


def _stated(element: Any) -> _Numbering:
    stated = element.find(f"{W}pPr/{W}numPr")
    if stated is None:
        return _Numbering("", -1)
    level = _value(stated, "ilvl")
    return _Numbering(_value(stated, "numId"), _number(level) if level else -1)


def _value(element: Any, name: str) -> str:
    child = element.find(W + name)
    return "" if child is None else str(child.get(W + "val", ""))


def _number(text: str | None) -> int:
    return min(int(text), _MAX_COUNT) if text and text.isascii() and text.isdigit() else 0


def _spelt(count: int, kind: str) -> str:
    match kind:
        case "decimalZero":
            return f"{count:02}"
        case "lowerLetter" | "upperLetter" if count > 0:
            letters = chr(ord("a") + (count - 1) % 26) * min((count - 1) // 26 + 1, 9)
            return letters if kind == "lowerLetter" else letters.upper()
        case "lowerRoman" | "upperRoman" if 0 < count < 4000:
            return _roman(count) if kind == "lowerRoman" else _roman(count).upper()
    return str(count)


def _roman(count: int) -> str:
    said = ""
    for value, letters in _ROMAN:
        said += letters * (count // value)
        count %= value
    return said + _ROMAN_ONES[count]
