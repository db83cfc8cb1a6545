"""A file of code as a record: what is read and what is not, its parts by whole lines, and what its repository says.

Checkouts, clones and loose files share it, so that a file gives the same record whichever way it came.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from aps_rag_pipeline.content.languages import DEFINITIONS, PROSE, language_of
from aps_rag_pipeline.content.medm import part_title, read_screen
from aps_rag_pipeline.content.syntax import stretches
from aps_rag_pipeline.content.text import decode, is_binary
from aps_rag_pipeline.records import FORMER_IDS, FieldValue, Link, Part, PartKind, Record
from aps_rag_pipeline.settings import Feed, SettingsError
from aps_rag_pipeline.sources.base import Ignored, Upsert
from aps_rag_pipeline.sources.repositories.history import HISTORY_COMMITS, NO_HISTORY, FileHistory

#: Bytes of a file that tell whether it is text.
HEAD_BYTES = 8192
#: More former names of one file than this are not kept.
_MOST_FORMER = 50

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
class CodeFile:
    """A file, wherever its bytes come from. `name` is the record's id. Without a `repository` it is a loose file.

    `aliases` are names that the repository had before; `touched_at` is the time of a file on disk.
    """

    name: str
    size: int
    repository: str = ""
    branch: str = ""
    history: FileHistory = NO_HISTORY
    aliases: tuple[str, ...] = ()
    touched_at: datetime | None = None


class CodeReader:
    """Turns the files of a feed into records.

    Raises:
        SettingsError: an option or the address template of the feed cannot be used.
    """

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.max_text_kb = _number(feed, "max_text_kb", 2000)
        self.history_commits = _number(feed, "history_commits", HISTORY_COMMITS)
        try:
            self._url("", {})
        except (KeyError, IndexError, ValueError) as error:
            raise SettingsError(f"feed {feed.name}: url_template cannot be filled in ({error})") from error

    def read(
        self, file: CodeFile, head: Callable[[], bytes], load: Callable[[], bytes], committed: Callable[[bytes], bool]
    ) -> Iterator[Upsert | Ignored]:
        """The record of a file, or why it is none. `head` gives its first `HEAD_BYTES`, `load` all of it within the
        limits; `committed` tells whether bytes are those of the last commit."""
        reason = _by_name(file.name) or self._by_head(file.size, head)
        if reason:
            yield Ignored(file.name, reason)
            return
        data = load()
        text = decode(data, self.feed.encoding)
        language = language_of(file.name, text)
        reason = _written_by_machine(text, language)
        if reason:
            yield Ignored(file.name, reason)
        else:
            yield Upsert(self._record(file, text, language, committed(data)), file.name, file.name)

    def _by_head(self, size: int, read_head: Callable[[], bytes]) -> str:
        head = read_head()
        if size <= len(head) and not head.strip():
            return "an empty file"
        if head.startswith(_POINTERS):
            return "a pointer to a large file that is not here (Git LFS or git-annex)"
        if is_binary(head):
            return "binary"
        if size > self.max_text_kb * 1000:
            return f"{size / 1e6:.1f} MB of text is data, not code; options.max_text_kb sets the limit"
        return ""

    def _record(self, file: CodeFile, text: str, language: str, committed: bool) -> Record:
        fields: dict[str, FieldValue] = {"language": language or "unknown"}
        title, links, history = file.name, list[Link](), file.history
        modified = file.touched_at
        if file.repository:
            title = file.name.removeprefix(file.repository + "/")
            fields |= {"repository": file.repository, "branch": file.branch, "commit": history.commit}
            if committed:
                modified = history.modified_at or modified
            else:
                fields["uncommitted"] = True
            former = _former_ids(file, title)
            if former:
                fields[FORMER_IDS] = former
                links += [Link("supersedes", old, "renamed") for old in former]
        parts, more = _parts(title, text, language)
        return Record(
            source=self.feed.source,
            feed=self.feed.name,
            id=file.name,
            title=title,
            created_at=history.created_at,
            modified_at=modified,
            author=history.author,
            url=self._url(file.name, fields),
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


def _former_ids(file: CodeFile, path: str) -> list[str]:
    """The ids that the record had, the newest first: under former paths, and under former names of the repository."""
    former = [f"{file.repository}/{old}" for old in file.history.former]
    former += [f"{alias}/{known}" for alias in file.aliases for known in (path, *file.history.former)]
    return [name for name in dict.fromkeys(former) if name != file.name][:_MOST_FORMER]


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


def _number(feed: Feed, option: str, default: int) -> int:
    value = feed.options.get(option, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SettingsError(f"feed {feed.name}: options.{option} must be a whole number above 0, not {value!r}")
    return value
