"""The written wiki of the demo as a MediaWiki's pages."""

from __future__ import annotations

import hashlib
import posixpath
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from aps_rag_pipeline.content.text import decode
from aps_rag_pipeline.demo.live.wiki_store import WikiStore
from aps_rag_pipeline.sources.wikilinks import MARKUPS, page_id

#: Markup of a file -> content model of its page. Only the first two are models that MediaWiki or a known extension has.
_MODELS = {"mediawiki": "wikitext", "markdown": "markdown", "dokuwiki": "dokuwiki", "html": "html", "rest": "rest"}


@dataclass
class FolderPages:
    """Keeps a store equal to a folder: a file that changed is an edit, one that went a deletion.

    Ids come from names and contents, so that a server that is started anew serves the same pages; the numbers of
    recent changes begin at one that the state of the whole folder gives.
    """

    folder: Path
    store: WikiStore = field(default_factory=lambda: WikiStore(case_sensitive=True))
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    _titles: dict[str, str] = field(default_factory=dict)

    def refresh(self) -> None:
        """Take over what changed in the folder."""
        files = {}
        for path in sorted(self.folder.rglob("*")):
            if path.suffix.lower() in MARKUPS and path.is_file():
                found = path.stat()
                files[path.relative_to(self.folder).as_posix()] = (found.st_mtime_ns, found.st_size)
        if files == self._seen:
            return
        if not self._seen:
            self.store.number_from(_number(repr(sorted(files.items()))))
        titles = _titles(files)
        kept = {titles[name] for name in files}
        for title in {self._titles[name] for name in self._seen} - kept:
            self.store.delete(title)
        for name, state in files.items():
            if self._seen.get(name) != state or self._titles.get(name) != titles[name]:
                self._save(name, titles[name], state[0])
        self._seen, self._titles = files, titles

    def _save(self, name: str, title: str, mtime_ns: int) -> None:
        text = decode((self.folder / name).read_bytes())
        self.store.now = datetime.fromtimestamp(mtime_ns // 1_000_000_000, UTC)
        markup = MARKUPS[posixpath.splitext(name)[1].lower()]
        self.store.edit(
            title,
            text,
            model=_MODELS[markup],
            page_id=_number(title),
            revision_id=_number(f"{title}\n{mtime_ns}\n{text}"),
        )


def _titles(names: dict[str, tuple[int, int]]) -> dict[str, str]:
    """File → title. Of files that differ in their ending only, the first has the title without it."""
    order = list(MARKUPS)
    taken: set[str] = set()
    titles = {}
    for name in sorted(names, key=lambda name: (page_id(name), order.index(posixpath.splitext(name)[1].lower()))):
        titles[name] = name if page_id(name) in taken else page_id(name)
        taken.add(page_id(name))
    return titles


def _number(said: str) -> int:
    return int.from_bytes(hashlib.blake2b(said.encode("utf-8", "backslashreplace"), digest_size=5).digest(), "big") + 1
