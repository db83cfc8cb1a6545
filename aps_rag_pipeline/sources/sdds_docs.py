"""Source `sdds_docs`: manuals of the accelerator's tools (LaTeX, HTML, Markdown, text) and the headers of SDDS files.

A manual is one record. What it takes in by \\input belongs to it: a shared fragment is read in its place and is no
record of its own, a chapter with a title of its own is a record to which the manual is linked. Macros are those of the
file itself and of the manuals that take it in. Files are taken in from the feed's folder only.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar

from aps_rag_pipeline.content.latex import read_manual
from aps_rag_pipeline.content.latex_source import Macros, plain
from aps_rag_pipeline.content.markup import blocks_to_text, parse_html, tree_blocks
from aps_rag_pipeline.content.sdds import HEADER_BYTES, is_sdds, read_first_page, read_header, unpacked
from aps_rag_pipeline.content.sdds_parts import sdds_fields, sdds_links, sdds_parts, started_at
from aps_rag_pipeline.content.sections import from_blocks, from_markdown
from aps_rag_pipeline.content.text import decode, is_binary
from aps_rag_pipeline.records import FieldValue, Link, Part, Record
from aps_rag_pipeline.sources.base import Failure, Ignored, Source, UnreadableError, Upsert
from aps_rag_pipeline.sources.files import FileEntry, FileSource, Listing, Unit

_LATEX = (".tex", ".ltx", ".latex")
_STYLES = (".sty", ".cls")
_HTML = (".html", ".htm", ".xhtml")
_MARKDOWN = (".md", ".markdown")
_TEXT = (".txt",)
_MANUALS = (*_LATEX, *_HTML, *_MARKDOWN, *_TEXT)
#: A file with one of these begins a manual or a chapter; without it is a fragment of one.
_OWN_TITLE = re.compile(
    r"^[^%\n]*\\(?:part|chapter|section|subsection|subsubsection|title|begin\{document\})(?![a-zA-Z])"
    r"|\A(?:\s++|%[^\n]*+\n|\\(?!begin\b)[a-zA-Z]++(?:\{[^{}\n]*\})?)*+"
    r"\\begin\{(?!tab|array|longtable|minipage|list|thebibliography|figure)[^}]*\}\s*\{",
    re.MULTILINE,
)
#: What makes a file depend on others or others on it.
_PROGRAMS = re.compile(
    rb"\\(?:input|include|subfile|usepackage|RequirePackage|[a-z]*newcommand|providecommand|DeclareRobustCommand"
    rb"|[a-z]*newenvironment|[ge]?def)(?![a-zA-Z])"
)
_INCLUDES = re.compile(rb"&include\b[^&]*?filename\s*=\s*\"?([^\"\s,&]+)")
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
_HEAD = 4096
#: The longest manual: four times the longest one known, and what is parsed in bounded time.
MANUAL_BYTES = 4_000_000


@dataclass(frozen=True)
class LatexFile:
    """A LaTeX file of the feed: which others it takes in, whether it is a manual or chapter by itself, its macros."""

    entry: FileEntry
    inputs: tuple[str, ...] = ()
    titled: bool = True
    macros: Macros = field(default_factory=Macros)


@dataclass(frozen=True)
class ManualUnit(Unit):
    """A LaTeX file with what its text depends on. `whole` is the manual that an untitled fragment is read with."""

    latex: Mapping[str, LatexFile]
    macros_from: tuple[str, ...]
    whole: str


class SddsDocs(FileSource):
    key: ClassVar[str] = "sdds_docs"

    # which files belong together

    def units(self, listing: Listing) -> Iterator[Unit]:
        entries = {entry.name: entry for entry in listing.files}
        latex = {
            name: self._latex_file(entry, entries)
            for name, entry in entries.items()
            if name.lower().endswith((*_LATEX, *_STYLES))
        }
        users: dict[str, list[str]] = {}
        for name, file in latex.items():
            for taken in file.inputs:
                users.setdefault(taken, []).append(name)
        for name, entry in entries.items():
            if name in latex:
                yield _manual_unit(latex, users, name)
            else:
                yield Unit(name, (entry, *self._header_files(entry, entries)))

    def _latex_file(self, entry: FileEntry, entries: Mapping[str, FileEntry]) -> LatexFile:
        names: list[str] = []

        def note(name: str) -> str | None:
            found = _resolved(name, entry.name, entries)
            names.extend([found] if found else [])
            return None

        try:
            data = self._manual(entry)
            text = decode(data, self.feed.encoding)
            macros = plain(text, Macros(), note).macros if _PROGRAMS.search(data) else Macros()
        except UnreadableError:
            return LatexFile(entry)  # it fails again when it is read
        titled = entry.name.lower().endswith(_LATEX) and _OWN_TITLE.search(text) is not None
        return LatexFile(entry, tuple(dict.fromkeys(names)), titled, macros)

    def _header_files(self, entry: FileEntry, entries: Mapping[str, FileEntry]) -> Iterator[FileEntry]:
        """The files from which an SDDS file takes header lines."""
        if entry.name.lower().endswith((*_LATEX, *_HTML, *_MARKDOWN)):
            return
        try:
            with entry.path.open("rb") as file:
                head = file.read(_HEAD)
        except OSError:
            return  # it fails when it is read
        if head.startswith(b"SDDS"):
            for name in _INCLUDES.findall(head):
                found = _above(name.decode("utf-8", "replace"), entry.name, entries)
                if found:
                    yield entries[found]

    # reading

    def read(self, unit: Unit) -> Iterator[Upsert | Failure | Ignored]:
        entry = unit.files[0]
        name = entry.name.lower()
        if name.endswith(_STYLES):
            yield Ignored(entry.name, "a LaTeX style: manuals that use it are read with its macros")
        elif isinstance(unit, ManualUnit) and unit.whole:
            yield Ignored(entry.name, f"a fragment, read as part of {unit.whole}")
        elif isinstance(unit, ManualUnit):
            yield from self._latex(unit, entry)
        elif name.endswith((*_HTML, *_MARKDOWN)):
            yield self._marked_up(entry)
        elif is_sdds(entry.path):
            yield self._sdds(unit, entry)
        elif name.endswith(_TEXT):
            yield self._marked_up(entry)
        elif name.endswith(".sdds") and not entry.size:
            self.load(entry)
        else:
            yield Ignored(entry.name, "no manual, and does not begin with SDDS and a version number")

    def _latex(self, unit: ManualUnit, entry: FileEntry) -> Iterator[Upsert | Ignored]:
        macros = Macros()
        for name in unit.macros_from:
            macros.commands |= unit.latex[name].macros.commands
            macros.environments |= unit.latex[name].macros.environments
        links: dict[str, Link] = {}

        def find(name: str) -> str | None:
            found = _resolved(name, entry.name, unit.latex)
            if found is None:
                return None
            if unit.latex[found].titled:
                links[found] = Link("document", found, name)
                return ""
            return self._source(unit.latex[found].entry)

        manual = read_manual(self._source(entry), macros, find)
        if not manual.parts and not links:
            yield Ignored(entry.name, "LaTeX without any text: macros and settings")
            return
        fields: dict[str, FieldValue] = {"format": "latex"}
        if manual.missing:
            fields["missing_inputs"] = list(manual.missing)
        urls = (Link("url", url, text) for url, text in manual.urls.items())
        yield self._upsert(entry, manual.title, manual.parts, fields, (*links.values(), *urls), author=manual.author)

    def _source(self, entry: FileEntry) -> str:
        return decode(self._manual(entry), self.feed.encoding)

    def _manual(self, entry: FileEntry) -> bytes:
        if entry.size > MANUAL_BYTES:
            raise UnreadableError(
                f"{entry.size / 1e6:.0f} MB of text are no manual (the limit is {MANUAL_BYTES / 1e6:.0f})",
                remedy="split it, or leave it out by `exclude`",
            )
        return self.load(entry)

    def _marked_up(self, entry: FileEntry) -> Upsert | Ignored:
        data = self._manual(entry)
        if is_binary(data):
            raise UnreadableError("binary data under the name of a text", remedy="exclude it or rename it")
        name = entry.name.lower()
        title, author = "", ""
        if name.endswith(_HTML):
            declared = _CHARSET.search(data[:_HEAD])
            tree = parse_html(decode(data, self.feed.encoding or _known(declared)))
            title = " ".join(tree.title.get_text().split()) if tree.title else ""
            stated = tree.find("meta", attrs={"name": "author"})
            author = str(stated.get("content", "")) if stated else ""
            blocks = tree_blocks(tree)
            parts, form = from_blocks(blocks), "html"
            empty = not blocks_to_text(blocks).strip()
        elif name.endswith(_MARKDOWN):
            parts, form = from_markdown(decode(data, self.feed.encoding)), "markdown"
            empty = not parts
        else:
            text = decode(data, self.feed.encoding).strip("\n")
            parts, form, empty = (Part("prose", text),), "text", not text.strip()
        if empty:
            return Ignored(entry.name, "no text in it")
        title = title or next((part.locator.split(" > ")[0] for part in parts if part.locator), "")
        return self._upsert(entry, title, parts, {"format": form}, author=author)

    def _sdds(self, unit: Unit, entry: FileEntry) -> Upsert:
        included = {file.name: file for file in unit.files[1:]}

        def find(name: str) -> bytes | None:
            found = _above(name, entry.name, included)
            return self.load(included[found]) if found else None

        header = read_header(unpacked(entry.path, HEADER_BYTES), find)
        page = read_first_page(entry.path, header)
        base = entry.name.rsplit("/", 1)[-1]
        about = header.text.strip("{} ") or header.contents.strip("{} ")
        started = started_at(header, page)
        fields = {"format": "sdds", **sdds_fields(header, page)}
        if started is not None:
            fields["start_time"] = started.isoformat()
        return self._upsert(
            entry,
            f"{base}: {about}" if about else base,
            sdds_parts(base, header, page),
            fields,
            sdds_links(header, page),
            created=started,
        )

    def _upsert(
        self,
        entry: FileEntry,
        title: str,
        parts: tuple[Part, ...],
        fields: dict[str, FieldValue],
        links: tuple[Link, ...] = (),
        author: str = "",
        created: datetime | None = None,
    ) -> Upsert:
        record = Record(
            source=self.key,
            feed=self.feed.name,
            id=entry.name,
            title=title or entry.name.rsplit("/", 1)[-1],
            created_at=created,
            modified_at=datetime.fromtimestamp(entry.mtime_ns // 1_000_000_000, UTC),
            author=author,
            url=self.feed.url_template.format(id=entry.name) if self.feed.url_template else "",
            parts=parts,
            fields=fields,
            links=links,
            access=self.feed.access,
        )
        return Upsert(record, entry.name, entry.name)


def _manual_unit(latex: Mapping[str, LatexFile], users: Mapping[str, list[str]], name: str) -> ManualUnit:
    above = _reached(name, users)
    inside = _inside(latex, name)
    macros_from = dict.fromkeys(macro for user in reversed(above) for macro in (*_inside(latex, user), user))
    macros_from.pop(name, None)
    whole = next((user for user in reversed(above) if latex[user].titled), "")
    files = dict.fromkeys((name, *macros_from, *inside))
    entries = tuple(latex[each].entry for each in files)
    return ManualUnit(name, entries, latex, tuple(macros_from), "" if latex[name].titled else whole)


def _inside(latex: Mapping[str, LatexFile], name: str) -> list[str]:
    """The fragments that are read in the place of their \\input, at any depth."""
    return _reached(name, {each: [f for f in file.inputs if not latex[f].titled] for each, file in latex.items()})


def _reached(start: str, ways: Mapping[str, list[str]]) -> list[str]:
    """What is reached from `start`, nearest first, each once."""
    found = [start]
    for each in found:
        found.extend(other for other in ways.get(each, ()) if other not in found)
    return found[1:]


def _resolved(name: str, user: str, files: Mapping[str, object]) -> str | None:
    """The file of the feed that a manual means: beside it, or from the feed's folder; with or without its suffix."""
    for folder in (posixpath.dirname(user), ""):
        path = posixpath.normpath(posixpath.join(folder, name))
        for suffix in ("", ".tex"):
            if path + suffix in files and path + suffix != user:
                return path + suffix
    return None


def _above(name: str, user: str, files: Mapping[str, object]) -> str | None:
    """The file that an SDDS header means: programs run in any folder above it."""
    folder = posixpath.dirname(user)
    while True:
        path = posixpath.normpath(posixpath.join(folder, name))
        if path in files and path != user:
            return path
        if not folder:
            return None
        folder = posixpath.dirname(folder)


def _known(declared: re.Match[bytes] | None) -> str | None:
    """A declared encoding that Python knows."""
    if declared is None:
        return None
    name = declared.group(1).decode("ascii")
    try:
        "".encode(name)
    except (LookupError, UnicodeError):
        return None
    return name


FORMS: dict[str, type[Source]] = {"files": SddsDocs}
