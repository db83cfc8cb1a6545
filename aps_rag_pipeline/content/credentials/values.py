"""What a value may be: a credential, a word of a sentence, a placeholder, a piece of code."""

from __future__ import annotations

import re

_PLACEHOLDER = re.compile(
    r"<[^>]*>?|\$\(.*|\$?\{.*|\$[A-Za-z_]\w*|%\(?\w+\)?s?|[*._\-x•?]{2,}|\[.*|@\w+@|"
    r"(?:your|my|the|some|new|old|example|dummy|test)?[ _-]?(?:user(?:name)?|pass(?:word|wd)?|pwd?|secret|token|key)s?|"
    r"none|null|nil|true|false|undefined|n/a|tbd|nan",
    re.IGNORECASE,
)
_CODE = re.compile(
    # calls, indices, attributes, names that say "password" again, types
    r"[A-Za-z_][\w.:]*[(\[{].*|[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)+|[A-Za-z_]*(?:passw|phrase|pwd|secret|token|cred|key)[A-Za-z_]*|"
    r"(?:str|string|bytes|int|bool|char|text|any|object|optional|secretstr|varchar|byte|void|const)\b.*",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?:~|\.{1,2})?[/\\].*|[A-Za-z]:[/\\].*|\w[\w+.-]*://.*")
_NUMBER = re.compile(r"[+-]?\d{1,4}(?:[.,]\d+)?(?:e[+-]?\d+)?\s*[A-Za-zµμ%°/]{0,4}", re.IGNORECASE)
_PV = re.compile(r"[A-Za-z0-9_-]+(?::[A-Za-z0-9_.$()-]+)+")
#: What looks mixed but is no secret: dates, times, versions, file names, mail addresses, part and room numbers, ranges.
_ORDINARY = re.compile(
    r"\d[\d:./T+Z-]*(?:[ap]m|st|nd|rd|th|s|h|x)?|v?\d+(?:\.\w+)+|[\w.-]+\.[A-Za-z]\w{0,4}|[\w.+-]+@[\w.-]+|"
    r"[A-Z0-9]{1,12}(?:[-_#./][A-Z0-9]{1,12})*|[A-Za-z]{1,2}\d{1,4}|\d+[-/][A-Za-z]+|[A-Za-z]+(?:-[A-Za-z]+)*[?!]+|#?\d+|"
    r"[A-Za-z]+['’][a-z]+|[A-Za-z]+(?:[/&+=-][A-Za-z]+)+"
)
#: Words that follow "password is" or "password:" in sentences.
_SENTENCE_WORDS = """
    a about above accepted access account admin after again all already also always an and another any are as ask
    asked at available back bad be because been before being below blank bound box broken but by call can cannot
    card case changed clear comes contact correct could created default different disabled do does done due either
    empty enabled enter entry error even expired expires failed fails field file fine for forgotten found free
    from given go goes going good group has have here hidden how i if in incorrect input instead invalid is it its
    just kept known later left less like list locked login long lost made managed manager maybe me missing more
    must my name need needed needs never new next no non not nothing now of off ok okay old on once only open
    optional or other our out over page pending per please policy problem prompt protected protection provided
    read reader recovery rejected removed required reset right same saved see seems sent server set shared she
    short should shown so some somewhere still stored strong such taken temporary than that the their them then
    there these they this those through to too true try typed unchanged under unknown unset until up updated use
    used user username using valid value very via wait was we weak well were what when where which while who will
    with without work working works would write written wrong yes yet you your
"""
_STOP = frozenset(_SENTENCE_WORDS.split())
_INFLECTED = re.compile(r"[a-z]+(?:ed|ing|able|ible|ly|tion|ment)", re.IGNORECASE)


def is_placeholder(value: str) -> bool:
    """Whether a value stands for one that is not given: a variable, `<password>`, `****`."""
    return _PLACEHOLDER.fullmatch(value) is not None


def is_value(value: str) -> bool:
    """What follows `password =`: anything but what plainly is none."""
    if len(value) < 3 or is_placeholder(value) or not any(char.isalnum() for char in value):
        return False
    return not (_CODE.fullmatch(value) or _PATH.fullmatch(value) or value.lower().strip("!?*_") in _STOP)


def is_quoted_value(value: str) -> bool:
    """What stands in quotes behind `password =`; several words are a label or a hint rather than a password."""
    if any(char.isspace() for char in value):
        return any(is_secret(trimmed(word)) for word in value.split())
    return len(value) > 2 and not is_placeholder(value) and not _PATH.fullmatch(value)


def is_quoted_phrase(value: str) -> bool:
    """What a sentence puts in quotes as the password, with blanks or without."""
    return len(value) > 2 and not is_placeholder(value)


def is_short_keyword_value(value: str) -> bool:
    """What follows `pw:`, which is a pulse width or process water elsewhere."""
    return is_value(value) and not _NUMBER.fullmatch(value) and not _PV.fullmatch(value)


def is_told(value: str) -> bool:
    """What follows "the password is": a word of a sentence, or the password."""
    return is_value(value) and not _INFLECTED.fullmatch(value) and not _NUMBER.fullmatch(value)


def is_secret(value: str) -> bool:
    """Whether a value looks like a secret by itself: letters mixed with digits or signs, and nothing ordinary."""
    if not 6 <= len(value) <= 200 or value[0] in "([{-" or not is_value(value):
        return False
    if len(value) < 20 and (_ORDINARY.fullmatch(value) or _PV.fullmatch(value) or _NUMBER.fullmatch(value)):
        return False
    letters = any(char.isalpha() for char in value)
    return letters and any(char.isdigit() or char in "!@#$%^&*+?~=" for char in value)


def is_long(value: str) -> bool:
    return len(value) >= 6 and not is_placeholder(value)


def is_given(value: str) -> bool:
    return not is_placeholder(value) and not _PATH.fullmatch(value) and not value.startswith("-")


def trimmed(value: str) -> str:
    """A value without the punctuation of the sentence or the call around it."""
    while value and value[-1] in ".,;:)]}":
        opening = {")": "(", "]": "[", "}": "{"}.get(value[-1])
        if opening and value.count(opening) >= value.count(value[-1]):
            break
        value = value[:-1]
    return value


def is_door_code(value: str) -> bool:
    """What follows "door code": digits, unless they are a year."""
    return re.fullmatch(r"(?:19|20)\d\d", value) is None
