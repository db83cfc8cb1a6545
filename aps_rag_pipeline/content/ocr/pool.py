"""Many pictures at once, in processes that can be killed: one that hangs, grows or crashes costs one failure."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue

import msgspec

from aps_rag_pipeline.content.children import Child, ChildError, Strike, Watch, ending
from aps_rag_pipeline.content.ocr.reading import OcrResult
from aps_rag_pipeline.settings import Limits

WORKER = "aps_rag_pipeline.content.ocr.worker"
#: First byte of a reader's last frame; an empty frame is a sign of life.
RESULT, FAILURE = b"r", b"x"
#: What a reader may take besides Tesseract's own time: starting, decoding, preparing.
_SLACK_S = 30.0
#: Bytes that a reader may hold, Tesseract's own not counted: 120 million pixels once, and what is made of a piece.
_MEMORY = 1_000_000_000


class OcrJob(msgspec.Struct, frozen=True):
    """A picture to read: its hash, the file of its bytes, its media type; `page` (1-based) of a PDF, 0 for all."""

    sha256: str
    path: Path
    media_type: str = ""
    page: int = 0
    language: str = "eng"


class OcrFailure(msgspec.Struct, frozen=True):
    """A picture that could not be read. `permanent` means that only other bytes can help."""

    reason: str
    remedy: str = ""
    permanent: bool = True


_decode_result = msgspec.msgpack.Decoder(OcrResult).decode
_decode_failure = msgspec.msgpack.Decoder(OcrFailure).decode


def recognise(
    items: Iterable[OcrJob], limits: Limits, *, workers: int | None = None, timeout: float | None = None
) -> Iterator[tuple[OcrJob, OcrResult | OcrFailure]]:
    """Read pictures in `workers` processes; pairs come as they are done.

    `timeout` is the time in seconds without a sign of life (a frame, a page) after which a reader is killed. Items are
    taken as they are needed. Closing the iterator ends the readers.
    """
    count = workers or limits.ocr_workers or os.cpu_count() or 1
    silence = limits.ocr_timeout_s + _SLACK_S if timeout is None else timeout
    idle: SimpleQueue[_Reader] = SimpleQueue()
    readers = [_Reader(limits, silence) for _ in range(count)]
    for reader in readers:
        idle.put(reader)

    def read(job: OcrJob) -> tuple[OcrJob, OcrResult | OcrFailure]:
        reader = idle.get()
        try:
            return job, reader.read(job)
        finally:
            idle.put(reader)

    running: set[Future[tuple[OcrJob, OcrResult | OcrFailure]]] = set()
    threads = ThreadPoolExecutor(count, thread_name_prefix="ocr")
    try:
        for job in items:
            running.add(threads.submit(read, job))
            if len(running) >= count * 2:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        for future in running:
            future.cancel()
        for reader in readers:
            reader.close()
        threads.shutdown(cancel_futures=True)


class _Reader:
    """A child that reads one picture after another, started when it is first needed and again after its end."""

    def __init__(self, limits: Limits, silence: float) -> None:
        self._limits = limits
        self._silence = silence
        self._child: Child | None = None
        self._lock = threading.Lock()
        self._closed = False

    def read(self, job: OcrJob) -> OcrResult | OcrFailure:
        try:
            child = self._started()
        except ChildError as error:
            return OcrFailure(str(error), "look for room on this machine", permanent=False)
        watch = Watch(child, self._silence, _MEMORY)
        whole = False
        try:
            with watch:
                child.send(pickle.dumps(job))
                while not (frame := child.receive()):
                    watch.feed()
            answer = _decode_result(frame[1:]) if frame[:1] == RESULT else _decode_failure(frame[1:])
            whole = not watch.struck
        except ChildError:
            return self._failure(watch.struck, child.end())
        except msgspec.MsgspecError as error:
            return OcrFailure(f"reading the picture was answered with nonsense: {error}", "export it anew")
        finally:
            if not whole:
                child.end()
                self._child = None
        return answer

    def close(self) -> None:
        """End the child; a picture that is being read fails."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.end()

    def _started(self) -> Child:
        if self._child is not None and self._child.running:
            return self._child
        child = Child(WORKER, self._limits.model_dump_json(), environment={"OMP_THREAD_LIMIT": "1"})
        with self._lock:
            self._child = child
            if self._closed:
                child.end()
                raise ChildError("the readers were closed")
        return child

    def _failure(self, struck: Strike, code: int) -> OcrFailure:
        if struck == "time":
            return OcrFailure(
                f"reading the picture gave no sign of life for {self._silence:g} s and was stopped",
                "raise limits.ocr_timeout_s in facility.yaml, or make the picture smaller",
                permanent=False,
            )
        if struck == "memory":
            return OcrFailure(
                f"reading the picture took more than {_MEMORY / 1e6:g} MB and was stopped", "make the picture smaller"
            )
        how, from_outside = ending(code)
        if from_outside:
            return OcrFailure(f"reading the picture {how}", "look for memory on this machine", permanent=False)
        return OcrFailure(f"reading the picture {how}", "export it anew")
