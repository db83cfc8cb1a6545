"""Bytes to text: byte-order marks, declared or guessed encodings, line ends, characters that are no text."""

from __future__ import annotations

import codecs
import re

from charset_normalizer import from_bytes

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_GUESS_BYTES = 200_000
#: A guess counts where it is about another script. Between western code pages statistics cannot tell, and a degree
#: sign turned into something else is worse than the encoding that nearly all such files have.
_OTHER_SCRIPTS = {
    *("cp1250", "iso8859_2", "cp1251", "iso8859_5", "koi8_r", "koi8_u", "mac_cyrillic", "cp1253", "iso8859_7"),
    *("cp1255", "iso8859_8", "cp1256", "iso8859_6", "shift_jis", "cp932", "shift_jis_2004", "euc_jp", "iso2022_jp"),
    *("gb2312", "gbk", "gb18030", "hz", "big5", "big5hkscs", "cp950", "euc_kr", "cp949", "johab", "utf_16", "utf_32"),
}
#: Below this, statistics of letters name any encoding at all.
_TOO_SHORT_TO_GUESS = 400


def decode(data: bytes, encoding: str | None = None) -> str:
    """Text of a file. Nothing is dropped: bytes that fit no encoding are shown escaped. Lines end in `\\n`."""
    return clean(_decode(data, encoding))


def clean(text: str) -> str:
    """Unix line ends, no control characters, no lone surrogates."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(" ", text).encode("utf-8", "replace").decode("utf-8")


def is_binary(data: bytes) -> bool:
    """Whether these are not the bytes of a text file: zero bytes without the mark of a wide encoding."""
    head = data[:8192]
    return b"\x00" in head and not any(head.startswith(mark) for mark, _ in _MARKS)


def _decode(data: bytes, encoding: str | None) -> str:
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data.decode(name, "replace")
    if encoding:
        return data.decode(encoding, "backslashreplace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    if _mostly_utf8(data):
        # One pasted line in another encoding must not turn the rest of the file into mojibake.
        return "\n".join(_decode_line(line) for line in data.split(b"\n"))
    if len(data) < _TOO_SHORT_TO_GUESS:
        return data.decode("cp1252", "backslashreplace")
    best = from_bytes(data[:_GUESS_BYTES]).best()
    guess = best.encoding if best is not None else ""
    return data.decode(guess if guess in _OTHER_SCRIPTS else "cp1252", "backslashreplace")


def _mostly_utf8(data: bytes) -> bool:
    text = data.decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    right = sum(1 for char in text if ord(char) > 127) - wrong
    return right >= wrong


def _decode_line(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("cp1252", "backslashreplace")
