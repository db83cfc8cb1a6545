"""Parsers in processes of their own: one that hangs, grows or crashes costs its file, and the next file goes on.

The caller's bytes go to a child; what comes back are the bytes of attachments as they are found, questions for
pictures, and last the result or why there is none. Nothing a child says is trusted beyond its form.
"""

from __future__ import annotations

import atexit
import os
import pickle
import threading
from collections.abc import Callable
from datetime import UTC, tzinfo
from typing import Literal, TypeVar

import msgspec

from aps_rag_pipeline.content.assembly import Partition
from aps_rag_pipeline.content.children import Child, ChildError, Strike, Watch, ending
from aps_rag_pipeline.content.kinds import NoDocumentError
from aps_rag_pipeline.content.marked import MarkedPage
from aps_rag_pipeline.content.pages import FindPicture
from aps_rag_pipeline.content.sheet_rows import unpack_sheets
from aps_rag_pipeline.content.workbooks import Sheet
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import Blobs, UnreadableError

T = TypeVar("T")

WORKER = "aps_rag_pipeline.content.parse_worker"
#: First byte of a child's frame: bytes of an attachment, an address to find a picture by, the result, or a `Refusal`.
BLOB, PICTURE, RESULT, REFUSAL = b"b", b"p", b"r", b"x"
#: A child that keeps more than this share of what it may take has no room for the next file.
_KEEPING = 0.5
_SAVE_AGAIN = "open it in its own program and save it again"
_SPLIT = "save it anew, split it, or raise the limit in facility.yaml"


class Job(msgspec.Struct, frozen=True):
    """What goes to a child before the file's bytes; pickled, since it comes from this program.

    The bytes are a document, the UTF-8 text of a wiki's page in `markup`, or a workbook of which the rows are wanted.
    """

    name: str
    limits: Limits
    zone: tzinfo = UTC
    encoding: str | None = None
    task: Literal["document", "page", "rows"] = "document"
    markup: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """An `UnreadableError` on its way; `document` is false for a `NoDocumentError`."""

    reason: str
    remedy: str
    permanent: bool
    document: bool


_decode_partition = msgspec.msgpack.Decoder(Partition).decode
_decode_page = msgspec.msgpack.Decoder(MarkedPage).decode
_decode_refusal = msgspec.msgpack.Decoder(Refusal).decode


def parse_apart(data: bytes, job: Job, blobs: Blobs, find_picture: FindPicture) -> Partition:
    """Let a child parse a document. As many run as are asked for at a time; each reads one file after another.

    Raises:
        UnreadableError: what the parser says, or which limit it met; `NoDocumentError` as it is.
    """
    return _ask(data, job, blobs, find_picture, _decode_partition)


def page_apart(text: str, job: Job, blobs: Blobs, find_picture: FindPicture) -> MarkedPage:
    """Let a child parse a page of a wiki.

    Raises:
        UnreadableError: its markup cannot be parsed, not even as plain text, or not within the limits.
    """
    return _ask(text.encode("utf-8", "replace"), job, blobs, find_picture, _decode_page)


def sheets_apart(data: bytes, name: str, limits: Limits) -> list[Sheet]:
    """Let a child read a workbook.

    Raises:
        UnreadableError: like `workbooks.read_sheets`, or not within the limits.
    """
    return _ask(data, Job(name, limits, task="rows"), _NOWHERE, lambda _: None, unpack_sheets)


class _NoBlobs:
    """Rows have no attachments."""

    def put(self, data: bytes) -> str:
        raise msgspec.DecodeError("an attachment of rows")

    def get(self, sha256: str) -> bytes:
        raise KeyError(sha256)

    def __contains__(self, sha256: object) -> bool:
        return False


_NOWHERE = _NoBlobs()


def _ask(data: bytes, job: Job, blobs: Blobs, find_picture: FindPicture, decode: Callable[[bytes], T]) -> T:
    memory = int(job.limits.parse_memory_mb * 1e6)
    try:
        child = _children.take()
    except ChildError as error:
        raise UnreadableError(str(error), remedy="look for room on this machine", permanent=False) from error
    whole = False
    watch = Watch(child, job.limits.parse_timeout_s, child.memory() + memory)
    try:
        with watch:
            child.send(pickle.dumps(job))
            child.send(data)
            kind, body = _listen(child, watch, blobs, find_picture)
            answer = decode(body) if kind == RESULT else _decode_refusal(body)
        whole = not watch.struck and child.memory() < child.first_memory + memory * _KEEPING
    except ChildError as error:
        raise _ended(watch.struck, child.end(), job.limits) from error
    except msgspec.MsgspecError as error:
        raise UnreadableError(f"its parser crashed (it answered nonsense: {error})", remedy=_SAVE_AGAIN) from error
    finally:
        if whole:
            _children.give_back(child)
        else:
            child.end()
    if isinstance(answer, Refusal):
        refused = UnreadableError if answer.document else NoDocumentError
        raise refused(answer.reason, remedy=answer.remedy, permanent=answer.permanent)
    return answer


def _listen(child: Child, watch: Watch, blobs: Blobs, find_picture: FindPicture) -> tuple[bytes, bytes]:
    """The kind and the body of the last frame, after what comes before it has been seen to."""
    while True:
        frame = child.receive()
        kind, body = frame[:1], frame[1:]
        if kind == BLOB:
            blobs.put(body)
        elif kind == PICTURE:
            with watch.paused():  # it may come over a network, at our own pace
                picture = find_picture(body.decode("utf-8", "replace"))
            child.send(msgspec.msgpack.encode(picture))
        elif kind in (RESULT, REFUSAL):
            return kind, body
        else:
            raise msgspec.DecodeError(f"a frame of kind {kind!r}")


def _ended(struck: Strike, code: int, limits: Limits) -> UnreadableError:
    if struck == "time":
        return UnreadableError(
            f"its parser took more than limits.parse_timeout_s ({limits.parse_timeout_s:g} s) and was stopped",
            remedy=_SPLIT,
        )
    if struck == "memory":
        return UnreadableError(
            f"its parser asked for more than limits.parse_memory_mb ({limits.parse_memory_mb:g} MB) and was stopped",
            remedy=_SPLIT,
        )
    how, from_outside = ending(code)
    if from_outside:
        return UnreadableError(f"its parser {how}", remedy="look for memory on this machine", permanent=False)
    return UnreadableError(f"its parser {how}", remedy=_SAVE_AGAIN)


class _Children:
    """Those that have nothing to do at present."""

    def __init__(self) -> None:
        self._idle: list[Child] = []
        self._lock = threading.Lock()

    def take(self) -> Child:
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                return Child(WORKER)
            if child.running:
                return child
            child.end()

    def give_back(self, child: Child) -> None:
        with self._lock:
            if len(self._idle) < (os.cpu_count() or 1):
                self._idle.append(child)
                return
        child.end()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def forget(self) -> None:
        """After a fork: the children are the parent's."""
        self._idle, self._lock = [], threading.Lock()


_children = _Children()
atexit.register(_children.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_children.forget)
