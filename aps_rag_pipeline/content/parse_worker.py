"""The process in which parsers run: a job and a file's bytes come in, attachments and a result go out."""

from __future__ import annotations

import hashlib
import pickle
import signal
import sys
from typing import IO, Any, cast

import msgspec

from aps_rag_pipeline.content.assembly import Partition, Picture
from aps_rag_pipeline.content.children import own_streams, read_frame, write_frame
from aps_rag_pipeline.content.guard import reading
from aps_rag_pipeline.content.isolation import BLOB, PICTURE, REFUSAL, RESULT, Job, Refusal
from aps_rag_pipeline.content.kinds import NoDocumentError
from aps_rag_pipeline.content.marked import parse_page
from aps_rag_pipeline.content.parsers import parse
from aps_rag_pipeline.content.sheet_rows import pack_sheets
from aps_rag_pipeline.content.workbooks import read_sheets
from aps_rag_pipeline.sources.base import UnreadableError

#: Ends this process by itself where nobody is left to end it.
_ORPHAN_S = 60


class SentBlobs:
    """The caller's blob store, seen from here: what is put goes out, once."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self._sent: set[object] = set()
        self._last: tuple[bytes, str] = (b"", "")

    def put(self, data: bytes) -> str:
        if data is self._last[0]:  # a scanned file is attached once for each page
            return self._last[1]
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 not in self._sent:
            self._sent.add(sha256)
            write_frame(self._target, BLOB + data)
        self._last = data, sha256
        return sha256

    def __contains__(self, sha256: object) -> bool:
        return sha256 in self._sent

    def get(self, sha256: str) -> bytes:
        raise KeyError(sha256)


def answer(job: Job, data: bytes, source: IO[bytes], target: IO[bytes]) -> bytes:
    """The last frame of one file; whatever a parser raises is a refusal of this file alone."""

    def find_picture(address: str) -> Picture | None:
        _alarm(0)
        write_frame(target, PICTURE + address.encode("utf-8", "replace"))
        found = msgspec.msgpack.decode(read_frame(source) or b"", type=Picture | None)
        _alarm(_last_second(job))
        return found

    blobs = SentBlobs(target)
    try:
        if job.task == "rows":
            with reading("workbook"):
                return RESULT + pack_sheets(read_sheets(data, job.limits))
        if job.task == "page":
            page = parse_page(job.markup, data.decode(), blobs, job.zone, find_picture)
            return RESULT + msgspec.msgpack.encode(page)
        found = parse(data, job.name, job.limits, blobs, job.zone, job.encoding, find_picture)
        return RESULT + msgspec.msgpack.encode(_plain(found))
    except UnreadableError as error:
        return _refused(str(error), error.remedy, error.permanent, not isinstance(error, NoDocumentError))
    except MemoryError:
        return _refused("its parser had not enough memory", "split it, or raise limits.parse_memory_mb")
    except RecursionError:
        return _refused("nested too deeply", "open it in its own program and save it again")


def _plain(found: Partition) -> Partition:
    """Without what a subclass adds."""
    return Partition(**{name: getattr(found, name) for name in Partition.__dataclass_fields__})


def _refused(reason: str, remedy: str, permanent: bool = True, document: bool = True) -> bytes:
    return REFUSAL + msgspec.msgpack.encode(Refusal(reason, remedy, permanent, document))


def main() -> None:
    # A library behind `unstructured` takes torch along wherever it is: twice the start and 190 MB for nothing.
    cast(dict[str, Any], sys.modules)["torch"] = None
    source, target = own_streams()
    while (head := read_frame(source)) is not None:
        job: Job = pickle.loads(head)
        data = read_frame(source)
        if data is None:
            return
        _alarm(_last_second(job))
        last = answer(job, data, source, target)
        _alarm(0)
        write_frame(target, last)


def _last_second(job: Job) -> int:
    return int(job.limits.parse_timeout_s) + _ORPHAN_S


def _alarm(seconds: int) -> None:
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)


if __name__ == "__main__":
    main()
