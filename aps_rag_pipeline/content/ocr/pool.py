"""Many pictures at once, in processes that can be killed: one that hangs or crashes its reader costs one failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue

import msgspec

from aps_rag_pipeline.content.children import child_environment
from aps_rag_pipeline.content.ocr.reading import OcrResult
from aps_rag_pipeline.settings import Limits

#: What a reader may take besides Tesseract's own time: starting, decoding, preparing.
_SLACK_S = 30.0


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
    """A child process that reads one picture after another, started when it is first needed and again after its end."""

    def __init__(self, limits: Limits, silence: float) -> None:
        self._limits = limits
        self._silence = silence
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def read(self, job: OcrJob) -> OcrResult | OcrFailure:
        try:
            process = self._started()
        except OSError as error:
            return OcrFailure(f"no reader could be started: {error}", permanent=False)
        watch = _Watch(process, self._silence)
        try:
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(job, enc_hook=str).decode() + "\n")
            process.stdin.flush()
            answer = self._answer(process, watch)
        except (OSError, ValueError):  # the pipe broke, or was closed
            answer = None
        finally:
            watch.stop()
        if answer is None:
            self._end(process)
            return self._failure(process, watch)
        return answer

    def close(self) -> None:
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            self._end(process)

    def _answer(self, process: subprocess.Popen[str], watch: _Watch) -> OcrResult | OcrFailure | None:
        assert process.stdout is not None
        for line in process.stdout:
            watch.feed()
            if line.startswith("{"):
                found = json.loads(line)
                return msgspec.convert(found, OcrFailure) if "reason" in found else msgspec.convert(found, OcrResult)
        return None

    def _started(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise OSError("the readers were closed")
            if self._process is None or self._process.poll() is not None:
                # A file of our own, not multiprocessing: nothing of the caller's main module is imported again.
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-X",
                        "utf8",
                        "-m",
                        "aps_rag_pipeline.content.ocr.worker",
                        self._limits.model_dump_json(),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    encoding="utf-8",
                    env=child_environment(OMP_THREAD_LIMIT="1", PYTHONUTF8="1"),
                    start_new_session=True,  # so that its Tesseract dies with it
                )
            return self._process

    def _failure(self, process: subprocess.Popen[str], watch: _Watch) -> OcrFailure:
        if watch.struck:
            return OcrFailure(
                f"reading the picture gave no sign of life for {self._silence:g} s and was stopped",
                "raise limits.ocr_timeout_s in facility.yaml, or make the picture smaller",
                permanent=False,
            )
        return OcrFailure(f"reading the picture ended its process (code {process.returncode})", "export it anew")

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        kill(process)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue  # what was still to be written has nobody to read it


class _Watch:
    """Kills a process that is silent for too long."""

    def __init__(self, process: subprocess.Popen[str], silence: float) -> None:
        self.struck = False
        self._process = process
        self._silence = silence
        self._timer = self._start()

    def feed(self) -> None:
        self._timer.cancel()
        self._timer = self._start()

    def stop(self) -> None:
        self._timer.cancel()

    def _start(self) -> threading.Timer:
        timer = threading.Timer(self._silence, self._strike)
        timer.daemon = True
        timer.start()
        return timer

    def _strike(self) -> None:
        self.struck = True
        kill(self._process)


def kill(process: subprocess.Popen[str]) -> None:
    """End a process that leads its own group, and the group with it."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except (ProcessLookupError, PermissionError):
        return  # it has ended by itself
