"""Source `code`: git checkouts (tracked text files, as they stand in the working tree) and folders of loose scripts.

A record is one file, its parts are functions, procedures and sections by whole lines. Options of a feed:
`repository` (name of a checkout that is the location itself; its folder's name otherwise), `max_text_kb` (longer texts
are data, not code; 2000), `history_commits` (how far back times and authors are looked up; 5000).
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from aps_rag_pipeline.content.languages import DEFINITIONS, PROSE, language_of
from aps_rag_pipeline.content.medm import part_title, read_screen
from aps_rag_pipeline.content.syntax import stretches
from aps_rag_pipeline.content.text import decode, is_binary
from aps_rag_pipeline.records import FieldValue, Link, Part, PartKind, Record
from aps_rag_pipeline.settings import Feed, SettingsError
from aps_rag_pipeline.sources.base import (
    Failure,
    FeedError,
    Found,
    Ignored,
    Source,
    SourceContext,
    UnreadableError,
    Upsert,
)
from aps_rag_pipeline.sources.checkouts import (
    HISTORY_COMMITS,
    Checkout,
    FileHistory,
    is_bare,
    is_checkout,
    open_checkout,
    read_history,
)
from aps_rag_pipeline.sources.files import FileEntry, FileSource, Listing, Unit, printable

_LOCKS = (
    "package-lock.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "poetry.lock",
    "uv.lock",
    "cargo.lock",
    "go.sum",
    "*.lock",
)
_MINIFIED = ("*.min.js", "*.min.css", "*.js.map", "*.css.map")
_MINIFIABLE = frozenset({"javascript", "css", "json", "html"})
_HANDS_OFF = r"(?:do not|don't|never) (?:edit|modify|change)"
_GENERATED = re.compile(
    rf"@generated\b|\bgenerated\b.{{0,200}}{_HANDS_OFF}|{_HANDS_OFF}.{{0,200}}\bgenerated\b", re.I | re.S
)
_POINTERS = (b"version https://git-lfs.github.com/spec/", b"/annex/objects/")


@dataclass(frozen=True)
class TrackedFile(FileEntry):
    """A file of a checkout. `history` is None until the commits have been walked."""

    checkout: Checkout
    path_in_checkout: bytes
    history: FileHistory | None = None

    @property
    def state(self) -> str:
        # A commit changes what a record says of its file (author, commit) without touching the file.
        commit = self.checkout.head if self.history is None else f"{self.history.commit}|{self.history.blob}"
        return f"{super().state}|{self.checkout.branch}|{commit}"


class CodeFiles(FileSource):
    """A checkout, a folder with checkouts in it, or plain files; each file is a unit."""

    key: ClassVar[str] = "code"

    def __init__(self, feed: Feed, context: SourceContext) -> None:
        super().__init__(feed, context)
        self.max_text_kb = _number(feed, "max_text_kb", 2000)
        self.history_commits = _number(feed, "history_commits", HISTORY_COMMITS)
        try:
            self._url("", {})
        except (KeyError, IndexError, ValueError) as error:
            raise SettingsError(f"feed {feed.name}: url_template cannot be filled in ({error})") from error

    def check(self) -> Found:
        found = super().check()
        checkouts = {e.checkout.root for e in self.listing().files if isinstance(e, TrackedFile)}
        kind = f"{len(checkouts)} git checkouts" if checkouts else "no git checkout, read as plain files"
        return Found(found.units, f"{kind}; {found.detail}")

    # walking

    def listing(self) -> Listing:
        listing = super().listing()
        if listing.failures and not listing.files:
            raise FeedError(f"{self.feed.location}: {listing.failures[0].reason}; {listing.failures[0].remedy}")
        return listing

    def units(self, listing: Listing) -> Iterator[Unit]:
        histories: dict[Path, dict[bytes, FileHistory]] = {}
        for entry in listing.files:
            if isinstance(entry, TrackedFile):
                root = entry.checkout.root
                if root not in histories:
                    histories[root] = read_history(entry.checkout, self.history_commits)[0]
                entry = replace(entry, history=histories[root].get(entry.path_in_checkout, FileHistory()))
            yield Unit(entry.name, (entry,))

    def _walk(self, folder: Path, prefix: str, above: set[tuple[int, int]], found: Listing) -> None:
        if is_checkout(folder):
            known = folder.name if folder.name not in ("", "..") else folder.resolve().name
            own = str(self.feed.options.get("repository", "")) or printable(known)
            self._add_checkout(folder, prefix.rstrip("/") or own, found)
        elif is_bare(folder):
            found.ignored.append(Ignored(prefix.rstrip("/"), "a bare repository has no files; check it out"))
        else:
            super()._walk(folder, prefix, above, found)

    def _add_checkout(self, folder: Path, name: str, found: Listing) -> None:
        try:
            checkout = open_checkout(folder, name)
        except UnreadableError as error:
            found.failures.append(Failure(name, name, str(folder), str(error), error.remedy, error.permanent))
            return
        for tracked in checkout.tracked:
            path = folder / os.fsdecode(tracked.path)
            unit = f"{name}/{printable(os.fsdecode(tracked.path))}"
            if not self._wanted(unit):
                continue
            problem = tracked.problem
            try:
                status = None if problem else path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                problem, status = "tracked, but not in the working tree", None
            except OSError as error:
                found.failures.append(Failure(unit, unit, str(path), f"cannot be looked at ({error.strerror})"))
                continue
            if status is None or not stat.S_ISREG(status.st_mode):
                found.ignored.append(Ignored(unit, problem or "not a regular file"))
                continue
            times = (status.st_mtime_ns, status.st_ctime_ns)
            found.files.append(TrackedFile(path, unit, status.st_size, *times, checkout, tracked.path))

    # reading

    def read(self, unit: Unit) -> Iterator[Upsert | Failure | Ignored]:
        entry = unit.files[0]
        reason = _by_name(entry.name) or self._by_head(entry)
        if reason:
            yield Ignored(entry.name, reason)
            return
        data = self.load(entry)
        text = decode(data, self.feed.encoding)
        language = language_of(entry.name, text)
        reason = _written_by_machine(text, language)
        if reason:
            yield Ignored(entry.name, reason)
        else:
            yield Upsert(self._record(entry, data, text, language), unit.name, entry.name)

    def _by_head(self, entry: FileEntry) -> str:
        try:
            with entry.path.open("rb") as file:
                head = file.read(8192)
        except OSError as error:
            raise UnreadableError(f"cannot be opened ({error.strerror})", permanent=False) from error
        if entry.size <= len(head) and not head.strip():
            return "an empty file"
        if head.startswith(_POINTERS):
            return "a pointer to a large file that is not here (Git LFS or git-annex)"
        if is_binary(head):
            return "binary"
        if entry.size > self.max_text_kb * 1000:
            return f"{entry.size / 1e6:.1f} MB of text is data, not code; options.max_text_kb sets the limit"
        return ""

    def _record(self, entry: FileEntry, data: bytes, text: str, language: str) -> Record:
        fields: dict[str, FieldValue] = {"language": language or "unknown"}
        title, author, links = entry.name, "", list[Link]()
        modified = datetime.fromtimestamp(entry.mtime_ns // 1_000_000_000, UTC)
        created = None
        if isinstance(entry, TrackedFile):
            history = entry.history or FileHistory()
            checkout = entry.checkout
            title = entry.name.removeprefix(checkout.name + "/")
            fields |= {"repository": checkout.name, "branch": checkout.branch, "commit": history.commit}
            author, created = history.author, history.created_at
            if _is_committed(data, history.blob):
                modified = history.modified_at or modified
            else:
                fields["uncommitted"] = True
            if history.former:
                fields["renamed_from"] = list(history.former)
                links += [Link("supersedes", f"{checkout.name}/{old}", "renamed") for old in history.former]
        parts, more = _parts(title, text, language)
        return Record(
            source=self.key,
            feed=self.feed.name,
            id=entry.name,
            title=title,
            created_at=created,
            modified_at=modified,
            author=author,
            url=self._url(entry.name, fields),
            parts=parts,
            fields={name: value for name, value in fields.items() if value},
            links=(*links, *more),
            access=self.feed.access,
        )

    def _url(self, record_id: str, fields: dict[str, FieldValue]) -> str:
        if not self.feed.url_template:
            return ""
        from urllib.parse import quote

        repository = str(fields.get("repository", ""))
        values = {"branch": fields.get("branch", ""), "commit": fields.get("commit", ""), "repository": repository}
        values["path"] = record_id.removeprefix(repository + "/")
        quoted = {name: quote(str(value)) for name, value in values.items()}
        return self.feed.url_template.format(id=quote(record_id), **quoted)


def _parts(title: str, text: str, language: str) -> tuple[tuple[Part, ...], tuple[Link, ...]]:
    if title.lower().endswith(".ipynb"):
        cells = _notebook(text)
        if cells:
            return cells, ()
    kind: PartKind = "prose" if language in PROSE else "code"
    parts = [Part(kind, s.text, f"lines {s.first}-{s.last}", s.title) for s in stretches(text, language)]
    if language == "medm":
        screen = read_screen(text)
        named = (Part(p.kind, p.text, p.locator, part_title(p.text)) for p in parts)
        links = tuple(Link("process_variable", name) for name in screen.process_variables)
        return (Part("prose", screen.prose(title), title=screen.title), *named), links
    return tuple(parts), tuple(Link("process_variable", name) for name in _database_records(text, language))


def _database_records(text: str, language: str) -> tuple[str, ...]:
    """The records an EPICS database defines, where their names hold no macro."""
    if language != "epics-db":
        return ()
    names = re.findall(r"^\s*g?record\s*\(\s*\w+\s*,\s*\"?([^\",)\s]+)", text, re.MULTILINE)
    return tuple(dict.fromkeys(name for name in names if "$" not in name))


def _notebook(text: str) -> tuple[Part, ...]:
    """The cells of a notebook without their outputs; nothing when it is not one."""
    try:
        cells = json.loads(text)["cells"]
        found = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(
        Part("code" if kind == "code" else "prose", source, f"cell {number}")
        for number, (kind, source) in enumerate(found, 1)
        if source.strip()
    )


def _by_name(name: str) -> str:
    base = name.rsplit("/", 1)[-1].lower()
    if any(fnmatch.fnmatch(base, pattern) for pattern in _LOCKS):
        return "generated: a package manager's lock file"
    return "minified" if any(fnmatch.fnmatch(base, pattern) for pattern in _MINIFIED) else ""


def _written_by_machine(text: str, language: str) -> str:
    if language in _MINIFIABLE and len(text) > 2000 and len(text) > 400 * (text.count("\n") + 1):
        return "minified"
    if language in DEFINITIONS and _GENERATED.search(text[:1500]):
        return "generated: its first lines say that it is not to be edited"
    return ""


def _is_committed(data: bytes, blob: str) -> bool:
    """Whether a file's bytes are those of its last commit, line ends apart."""
    digest = hashlib.sha256 if len(blob) == 64 else hashlib.sha1
    forms = (data, data.replace(b"\r\n", b"\n"))
    return any(digest(b"blob %d\0%b" % (len(form), form)).hexdigest() == blob for form in forms)


def _number(feed: Feed, option: str, default: int) -> int:
    value = feed.options.get(option, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SettingsError(f"feed {feed.name}: options.{option} must be a whole number above 0, not {value!r}")
    return value


FORMS: dict[str, type[Source]] = {"files": CodeFiles}
