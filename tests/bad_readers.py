"""The reading process with a reader that does what the file says, for tests of what a decoder may do at its worst."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from aps_rag_pipeline.content.ocr import worker
from aps_rag_pipeline.content.ocr.pool import OcrFailure, OcrJob
from aps_rag_pipeline.content.ocr.reading import Beat, OcrResult
from aps_rag_pipeline.settings import Limits

WORKER = "tests.bad_readers"


def misbehave(job: OcrJob, limits: Limits, beat: Beat) -> OcrResult | OcrFailure:
    order = job.path.read_bytes()
    held = []
    while order == b"hang":
        time.sleep(10)
    while order == b"grow":
        held.append(bytearray(b"x" * 8_000_000))
        time.sleep(0.001)
    if order == b"crash":
        ctypes.string_at(0)
    if order == b"killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == b"nonsense":
        return OcrResult(text=7, confidence=0.0, words=0, engine="")
    if order == b"alive":
        for _ in range(12):
            time.sleep(0.25)
            beat()
    print("frames are not written here")
    return OcrResult(order.decode(), 90.0, 1, str(os.getpid()))


if __name__ == "__main__":
    worker.read = misbehave
    worker.main()
