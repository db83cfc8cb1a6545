"""The checker: a statement may cite only what is in evidence, and say no number or name that does not stand there."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aps_rag_pipeline.knowledge import identifiers
from query.results import Evidence, Sentence

#: A number with its decimal or thousands signs, or a time of day.
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,:]\d+)*(?![\w])|\d+(?:[.,:]\d+)*")


def unsupported(sentence: Sentence, evidence: Sequence[Evidence]) -> list[str]:
    """What is wrong with a statement; empty when every cited key is in evidence and every number and identifier of the
    statement stands in a cited passage."""
    cited = [item for item in evidence if item.key in sentence.keys or not set(item.also).isdisjoint(sentence.keys)]
    held = {key for item in cited for key in (item.key, *item.also)}
    problems = [f"{key} is not in evidence" for key in sentence.keys if key not in held]
    if not sentence.keys:
        problems.append("no source is cited")
    texts = [f"{item.key}\n{item.title}\n{item.locator}\n{item.text}" for item in cited]
    numbers_there = {number for text in texts for number in numbers(text)}
    names_there = {name for text in texts for name in identifiers.find(text)}
    problems += [f"{number} stands in no cited passage" for number in numbers(sentence.text) - numbers_there]
    problems += [
        f"{name} stands in no cited passage"
        for name in identifiers.find(sentence.text)
        if name not in names_there and not name.isdigit()  # numbers have been compared by value
    ]
    return problems


def numbers(text: str) -> set[str]:
    """Numbers of a text in one form: without thousands signs, leading plus or trailing zeros behind the point."""
    return {_canonical(match.group()) for match in _NUMBER.finditer(text)}


def _canonical(number: str) -> str:
    plain = re.sub(r",(?=\d{3}(?:\D|$))", "", number).lstrip("+-")
    if re.fullmatch(r"\d+\.\d+", plain):
        plain = plain.rstrip("0").rstrip(".")
    return plain
