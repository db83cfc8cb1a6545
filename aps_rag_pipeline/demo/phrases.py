"""The phrase bank: what people write, in two sets that share no sentence, and how their hurry spoils it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.resources import files
from string import Formatter
from typing import Any

import yaml

#: Chances that a word is shortened or misspelt in a text of roughness 1.
_SHORTEN, _MISSPELL = 0.35, 0.12
_WORD = re.compile(r"[A-Za-z]+")


@cache
def table(name: str) -> Any:
    """A file of the bank as parsed YAML. Callers must not change it."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = files(__package__).joinpath("bank", f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, loader)


@cache
def _pieces(phrase: str) -> tuple[tuple[str, str], ...]:
    """Literal text and the slot behind it ('' at the end)."""
    return tuple((literal, slot or "") for literal, slot, _, _ in Formatter().parse(phrase))


class Bank:
    """One of the two sets of phrases."""

    def __init__(self, held_out: bool) -> None:
        self.held_out = held_out
        self.side = "held" if held_out else "shown"

    def of(self, group: Mapping[str, Any]) -> Any:
        """This side's entry of a group that has both."""
        return group[self.side]

    def phrases(self, file: str, name: str) -> list[str]:
        found: list[str] = table(file)[name][self.side]
        return found

    def say(
        self, rng: random.Random, choices: list[str], slots: Mapping[str, object] | None = None, rough: float = 0.0
    ) -> str:
        """One of the phrases with its slots filled; `rough` from 0 (edited prose) to 1 (typed at 3 am)."""
        return self.fill(rng, rng.choice(choices), slots or {}, rough)

    def fill(self, rng: random.Random, phrase: str, slots: Mapping[str, object], rough: float = 0.0) -> str:
        out: list[str] = []
        for literal, slot in _pieces(phrase):
            out.append(self._spoil(rng, literal, rough) if rough else literal)
            if slot:
                out.append(str(slots[slot]))
        if rough and out[0][:2].istitle() and rng.random() < rough * 0.3:
            out[0] = out[0][:1].lower() + out[0][1:]
        return "".join(out)

    @cached_property
    def _habits(self) -> tuple[dict[str, str], dict[str, str]]:
        words = table("words")
        return words["abbreviations"], words["misspellings"]

    def _spoil(self, rng: random.Random, text: str, rough: float) -> str:
        short, wrong = self._habits

        def change(match: re.Match[str]) -> str:
            word = match.group()
            if word in short and rng.random() < _SHORTEN * rough:
                return short[word]
            if word in wrong and rng.random() < _MISSPELL * rough:
                return wrong[word]
            return word

        return _WORD.sub(change, text)


def both_sides(value: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Every (shown, held) pair below a parsed file of the bank."""
    if isinstance(value, dict):
        if set(value) == {"shown", "held"}:
            yield value["shown"], value["held"]
        else:
            for child in value.values():
                yield from both_sides(child)
    elif isinstance(value, list):
        for child in value:
            yield from both_sides(child)
