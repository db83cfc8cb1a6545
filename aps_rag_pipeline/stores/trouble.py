"""What the disk does to a home, in the words of each store, told in one line with what helps."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: Words of SQLite, Lance, Tantivy, DuckDB and the system itself, in lower case, and what they come to.
_TROUBLES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("no space left on device", "database or disk is full", "os error 28)", "disk quota exceeded", "os error 122)"),
        "no space is left on the disk; make room and run it again: what was released is served as before, and a sync "
        "goes on where it stopped",
    ),
    (
        ("file too large", "os error 27)"),
        "a file may not grow that large (see `ulimit -f`); raise that and run it again",
    ),
    (
        ("read-only file system", "readonly database", "os error 30)"),
        "is read-only here; only search, ask, show and status work on such a home",
    ),
    (
        ("permission denied", "operation not permitted", "os error 13)", "unable to open database file"),
        "this user may not (permission denied); run it as the owner of the home, or mend its permissions: readers must "
        "be able to read every file of it and to enter every folder",
    ),
    (
        ("too many open files", "os error 24)"),
        "this user may not have so many files open at once (see `ulimit -n`); raise that and run it again",
    ),
    (
        ("disk image is malformed", "file is not a database", "unsupported file format"),
        "the catalog is damaged; `aps-rag restore` puts a backup in its place, and until then what was released can "
        "still be read",
    ),
    (
        ("disk i/o error", "input/output error", "os error 5)"),
        "the disk did not do what it was told: it may be full or failing; see to it and run it again",
    ),
)
_PLACE = re.compile(r"'(/[^']+)'")


def told(error: BaseException | str) -> str:
    """One line: the place where it is known, what is wrong, what helps. Empty for what is no trouble of the disk.

    Args:
        error: an exception, whose causes are looked at too, or what one says.
    """
    for said, place in [(error, "")] if isinstance(error, str) else _chain(error):
        found = next((line for words, line in _TROUBLES if any(word in said.lower() for word in words)), "")
        if found:
            where = place or next(iter(_PLACE.findall(said)), "")
            return f"{where}: {found}" if where else found
    return ""


def _chain(error: BaseException | None) -> Iterator[tuple[str, str]]:
    """What an exception and its causes say, and the file each names."""
    while error is not None:
        yield str(error), str(getattr(error, "filename", None) or "")
        error = error.__cause__ or error.__context__
