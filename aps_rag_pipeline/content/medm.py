"""MEDM screens (`.adl`): what an operator sees on one and which process variables stand behind it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_VALUE = r'\s*=\s*"((?:[^"\\]|\\.)*)"'
_CHANNEL = re.compile(r"\b(?:chan[A-D]?|rdbk|ctrl|xdata|ydata|trigger|erase|countPvName)" + _VALUE)
_TEXT = re.compile(r"\b(?:textix|label|title|xlabel|ylabel|y[1-4]label)" + _VALUE)
_SCREEN = re.compile(r'\bname\s*=\s*"([^"]*\.adl)"')
_ELEMENT = re.compile(r'^"?text"?\s*\{(.*?)^\}', re.MULTILINE | re.DOTALL)
_HEIGHT = re.compile(r"\by\s*=\s*(-?\d+)")
#: Kinds of label that are settings, not words on the screen.
_SETTINGS = {"none", "limits", "outline", "channel", "no decorations"}
_LOCAL = ("loc://", "sim://", "calc://", "expr://")


@dataclass(frozen=True)
class Screen:
    """`title` is the topmost text. `channels` are as written, with their macros; `related` are screens it opens."""

    title: str
    texts: tuple[str, ...]
    channels: tuple[str, ...]
    related: tuple[str, ...]

    @property
    def process_variables(self) -> tuple[str, ...]:
        """The channels that are named in full: no macro in them, and not local to the display program."""
        found = (re.sub(r"^(?:ca|pva)://", "", channel) for channel in self.channels)
        return _distinct(name for name in found if "$" not in name and not name.startswith(_LOCAL) and " " not in name)

    def prose(self, name: str) -> str:
        lines = [f"MEDM screen {name}" + (f": {self.title}" if self.title else "")]
        lines += [f"Process variables: {', '.join(self.channels)}"] if self.channels else []
        lines += [f"Texts: {'; '.join(self.texts)}"] if self.texts else []
        lines += [f"Opens: {', '.join(self.related)}"] if self.related else []
        return "\n".join(lines)


def read_screen(text: str) -> Screen:
    own = [element for element in (match.group(1) for match in _ELEMENT.finditer(text)) if "textix" in element]
    top = min(own, key=_height, default="")
    texts = _distinct(word for word in _values(_TEXT, top + "\n" + text) if word.lower() not in _SETTINGS)
    title = next(iter(_values(_TEXT, top)), "")
    this = re.search(r"^file\s*\{\s*name" + _VALUE, text)
    related = _distinct(_values(_SCREEN, text if this is None else text[this.end() :]))
    return Screen(title, texts, _distinct(_values(_CHANNEL, text)), related)


def part_title(text: str) -> str:
    """What a piece of a screen shows: its first words and channels."""
    found = [*_values(_TEXT, text), *_values(_CHANNEL, text)]
    words = _distinct(word for word in found if word.lower() not in _SETTINGS)
    title = ""
    for word in words:
        if len(title) + len(word) > 100:
            return title or word[:100]
        title = f"{title}, {word}" if title else word
    return title


def _values(pattern: re.Pattern[str], text: str) -> Iterable[str]:
    return (value for value in (match.group(1).strip() for match in pattern.finditer(text)) if value)


def _height(element: str) -> int:
    found = _HEIGHT.search(element)
    return int(found.group(1)) if found else 1 << 30


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
