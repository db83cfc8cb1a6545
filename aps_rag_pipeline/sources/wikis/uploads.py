"""The shelf of a live wiki for one page: what is a page there, and its pictures, fetched once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from aps_rag_pipeline.content.assembly import Picture
from aps_rag_pipeline.sources.base import Failure, SourceContext, UnreadableError
from aps_rag_pipeline.sources.companions import media_type
from aps_rag_pipeline.sources.live import Memory
from aps_rag_pipeline.sources.net.errors import OutageError


@dataclass(frozen=True)
class Upload:
    """A file in a wiki. `key` moves with its bytes; `sha1` names them, where the wiki says it."""

    name: str
    url: str
    key: str
    sha1: str = ""


@dataclass
class LiveShelf:
    """Pages and uploads of a live wiki, as one page sees them. `find` gives the upload that an address means."""

    pages: Container[str]
    find: Callable[[str], Upload | None]
    #: Address and name of an upload → its bytes.
    download: Callable[[str, str], bytes]
    unit: str
    record_id: str
    context: SourceContext
    memory: Memory
    #: Pictures that could not be had, by name.
    failures: dict[str, Failure] = field(default_factory=dict)

    def first_page(self, candidates: Iterable[str]) -> str:
        return next((candidate for candidate in candidates if candidate in self.pages), "")

    def picture(self, address: str, places: Iterator[str]) -> Picture | None:
        if "://" in address or address in self.failures:
            return None
        try:
            upload = self.find(address)
            return None if upload is None else self._fetched(upload)
        except OutageError as error:
            self._failed(address, str(error), "it is asked for again with the next sync", False)
        except UnreadableError as error:
            self._failed(address, str(error), error.remedy, error.permanent)
        return None

    def _fetched(self, upload: Upload) -> Picture | None:
        def fetch() -> bytes:
            data = self.download(upload.url, upload.name)
            if not data or (upload.sha1 and hashlib.sha1(data, usedforsecurity=False).hexdigest() != upload.sha1):
                raise OutageError(f"{upload.name}: the bytes that came are not those that the wiki names")
            return data

        blobs = self.context.blobs
        data = blobs.get(self.memory.attachment(blobs, self.unit, upload.key, fetch))
        kind = media_type(upload.name, data)
        return Picture(upload.name, data, kind) if kind.startswith("image/") else None

    def _failed(self, address: str, reason: str, remedy: str, permanent: bool) -> None:
        item = f"{self.unit}/{address}"
        place = f"{self.record_id}: picture {address}"
        self.failures[address] = Failure(self.unit, item, place, reason, remedy, permanent, record_id=self.record_id)


def named(uploads: Mapping[str, Upload], name: str, first_letter: bool) -> Upload | None:
    """The upload of a name as a page writes it."""
    spelled = "_".join(name.split())
    return uploads.get(spelled[:1].upper() + spelled[1:] if first_letter else spelled)
