"""Files that log entries name, from the server."""

from __future__ import annotations

from aps_rag_pipeline.sources.base import SourceContext, UnreadableError
from aps_rag_pipeline.sources.belylive.client import Bely, ServerError
from aps_rag_pipeline.sources.live import Memory
from aps_rag_pipeline.sources.net.errors import OutageError

#: The server keeps pictures in three sizes and may have none under the bare name.
_ORIGINAL = "original"


class NoFiles:
    """For feeds that leave attachments out."""

    def read(self, address: str, name: str, stored: bool) -> None:
        return None


class FilesOnServer:
    """Attachments of one document. The server gives every upload a name of its own, so equal names are equal bytes."""

    def __init__(self, client: Bely, context: SourceContext, memory: Memory, unit: str) -> None:
        self._client = client
        self._context = context
        self._memory = memory
        self._unit = unit

    def read(self, address: str, name: str, stored: bool) -> bytes:
        if not stored:
            raise UnreadableError(f"{address} is no attachment of the server", remedy="attach the file to the entry")
        blobs = self._context.blobs
        return blobs.get(self._memory.attachment(blobs, self._unit, name, lambda: self._fetch(name)))

    def _fetch(self, name: str) -> bytes:
        try:
            data = self._download(name)
        except OutageError as error:
            raise UnreadableError(str(error), remedy="it is asked for again later", permanent=False) from error
        limit = self._context.limits.max_file_mb
        if len(data) > limit * 1e6:
            raise UnreadableError(
                f"{len(data) / 1e6:.0f} MB, more than limits.max_file_mb ({limit:g})",
                remedy="raise the limit or make the file smaller",
            )
        if not data:
            raise UnreadableError("the file is empty", remedy="attach the whole file", permanent=False)
        return data

    def _download(self, name: str) -> bytes:
        try:
            return self._client.attachment(name)
        except ServerError as error:
            if error.name != "FileNotFoundException":
                raise
            try:
                return self._client.attachment(name, _ORIGINAL)
            except OutageError:
                raise error from None
