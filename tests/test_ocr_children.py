"""The processes that read pictures: what they are told, what they may take, and that nothing of them stays behind."""

from __future__ import annotations

import ast
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC
from pathlib import Path

import psutil
import pytest
from PIL import Image

from aps_rag_pipeline.content import children, isolation
from aps_rag_pipeline.content.ocr import OcrFailure, OcrJob, engine, pool, recognise, worker
from aps_rag_pipeline.content.partition import partition
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.test_ocr import bomb

ROOT = Path(__file__).parents[1]
LIMITS = Limits(max_pixels=4_000_000_000, ocr_timeout_s=60)
#: A Tesseract that says what it is, and then does what a test wants.
TESSERACT = """#!/bin/sh
[ "$1" = --version ] && echo 'tesseract v9.1' && exit
[ "$1" = --list-langs ] && printf 'List of available languages:\\neng\\n' && exit
"""
READS = """
import sys
from pathlib import Path
from aps_rag_pipeline.content.ocr import OcrJob, recognise
from aps_rag_pipeline.settings import Limits
for each in recognise([OcrJob("x", Path(sys.argv[1]))], Limits(), workers=1):
    pass
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for Tesseract")


@pytest.fixture
def told(tmp_path: Path) -> Iterator[int]:
    """A pipe that a Tesseract writes its number and its parent's into; nobody waits for it but in `numbers`."""
    os.mkfifo(tmp_path / "told")
    pipe = os.open(tmp_path / "told", os.O_RDWR)
    yield pipe
    os.close(pipe)


def tesseract(folder: Path, does: str, monkeypatch: pytest.MonkeyPatch) -> OcrJob:
    """Let `does` be what Tesseract does in readers from here on; a picture for them."""
    (folder / "bin").mkdir()
    (folder / "bin/tesseract").write_text(f"{TESSERACT}{does}\n")
    (folder / "bin/tesseract").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    picture = Image.new("RGB", (300, 200), "white")
    picture.paste("black", (100, 80, 140, 120))
    picture.save(folder / "picture.png")
    return OcrJob("x", folder / "picture.png")


def numbers(pipe: int) -> list[int]:
    ready, _, _ = select.select([pipe], [], [], 60)
    assert ready, "no Tesseract was started"
    return [int(number) for number in os.read(pipe, 100).split()]


def has_ended(pid: int) -> bool:
    """Whether a process does nothing any more, a few seconds later at most; one that nobody waited for is a zombie."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        with suppress(psutil.TimeoutExpired):
            process.wait(6)
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def test_a_tesseract_that_hangs_is_stopped_with_its_reader(
    tmp_path: Path, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tesseract(tmp_path, f"echo $$ $PPID > {tmp_path / 'told'}; exec sleep 1000", monkeypatch)
    ((_, found),) = recognise([job], LIMITS, workers=1, timeout=5)
    assert isinstance(found, OcrFailure)
    assert "no sign of life for 5 s" in found.reason
    assert all(has_ended(number) for number in numbers(told))


def test_a_tesseract_does_not_outlive_a_reader_that_was_killed(
    tmp_path: Path, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = f"echo $$ > {tmp_path / 'told'}; kill -9 $PPID; exec sleep 1000"
    job = tesseract(tmp_path, order, monkeypatch)
    reader = children.Child(pool.WORKER, LIMITS.model_dump_json())
    reader.send(pickle.dumps(job))
    with pytest.raises(children.ChildError):
        reader.receive()
    (left,) = numbers(told)
    while reader.running:
        pass  # its streams are closed before it has quite ended
    assert reader.end() == -signal.SIGKILL
    assert has_ended(left)


def test_neither_outlives_a_command_that_was_killed(tmp_path: Path, told: int, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tesseract(tmp_path, f"echo $$ $PPID > {tmp_path / 'told'}; exec sleep 1000", monkeypatch)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", READS, str(job.path)], env=environment) as command:
        left = numbers(told)
        command.send_signal(signal.SIGKILL)
    assert len(left) == 2
    assert all(has_ended(number) for number in left)


def test_readers_and_their_tesseract_are_told_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"ICMS_PASSWORD": "s3cret-1", "BELY_TOKEN": "s3cret-2", "AWS_SECRET_ACCESS_KEY": "s3cret-3"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    order = f"env > {tmp_path / 'own'}; tr '\\0' '\\n' < /proc/$PPID/environ > {tmp_path / 'readers'}; exit 1"
    if not Path("/proc/self/environ").exists():
        order = f"env > {tmp_path / 'own'}; exit 1"
    ((_, found),) = recognise([tesseract(tmp_path, order, monkeypatch)], LIMITS, workers=1)
    assert isinstance(found, OcrFailure)
    for file in {tmp_path / "own", *tmp_path.glob("readers")}:
        said = file.read_text()
        assert "PATH=" in said
        assert not [text for text in (*secrets, *secrets.values()) if text in said]


def test_nor_is_a_tesseract_that_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tesseract(tmp_path, "", monkeypatch)
    (tmp_path / "bin/tesseract").write_text(f"#!/bin/sh\nenv >> {tmp_path / 'own'}\n{TESSERACT[10:]}")
    monkeypatch.setenv("ICMS_PASSWORD", "s3cret")
    engine.find_tesseract.cache_clear()
    try:
        found = engine.find_tesseract()
    finally:
        engine.find_tesseract.cache_clear()
    assert found is not None
    assert found.version == "9.1"
    assert "s3cret" not in (tmp_path / "own").read_text()


def test_memory_of_readers_and_their_tesseract_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tesseract(tmp_path, f"ulimit -v > {tmp_path / 'most'}; exit 1", monkeypatch)
    (tmp_path / "bomb.png").write_bytes(bomb())
    monkeypatch.setattr(pool, "_MEMORY", 10**12)  # what the watch allows; the reader's own limit holds by itself
    jobs = [OcrJob("bomb", tmp_path / "bomb.png"), job]
    found = {each.sha256: result for each, result in recognise(jobs, LIMITS, workers=1)}
    refused = found["bomb"]
    assert isinstance(refused, OcrFailure)
    assert "needs more memory than" in refused.reason
    assert (
        worker.MEMORY / 1024 < int((tmp_path / "most").read_text()) < 6e6
    )  # kilobytes, with what a reader begins with


def started_by(action: Callable[[], object]) -> dict[str, str]:
    """What the one process is told that `action` starts and leaves running."""
    before = set(psutil.Process().children())
    action()
    (child,) = set(psutil.Process().children()) - before
    return child.environ()


def test_what_children_are_told_has_one_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = children.child_environment
    monkeypatch.setattr(children, "child_environment", lambda **more: given(**more, TOLD="here"))
    isolation._children.close()
    blobs = BlobStore(tmp_path)
    told = started_by(lambda: partition(b"<html><p>words</p></html>", "x.html", Limits(), blobs, UTC))
    isolation._children.close()
    assert told["TOLD"] == "here"
    results = recognise((OcrJob(str(number), tmp_path / "gone") for number in range(9)), LIMITS, workers=1)
    told = started_by(lambda: next(results))
    results.close()
    assert (told["TOLD"], told["OMP_THREAD_LIMIT"]) == ("here", "1")


def test_children_are_started_in_one_place() -> None:
    """What they are told could otherwise be forgotten where one more is started."""
    starting = {"subprocess", "multiprocessing", "concurrent.futures.process"}
    found = {
        path.name
        for path in (ROOT / "aps_rag_pipeline/content").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and starting & {name.name for name in node.names})
        or (isinstance(node, ast.ImportFrom) and node.module in starting)
    }
    assert found == {"children.py", "engine.py"}  # the second asks Tesseract for its version
