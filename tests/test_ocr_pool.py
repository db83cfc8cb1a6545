"""Many pictures in processes of their own: one that hangs, grows or crashes its reader costs one failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from aps_rag_pipeline.content import ocr
from aps_rag_pipeline.content.ocr import OcrFailure, OcrJob, OcrResult, pool, recognise
from tests import bad_readers
from tests.test_ocr import LIMITS, NAMES, names, saved, screen


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that do what the file says."""
    monkeypatch.setattr(pool, "WORKER", bad_readers.WORKER)


def job(folder: Path, name: str, data: bytes, **values: object) -> OcrJob:
    path = folder / name
    path.write_bytes(data)
    return OcrJob(name, path, **values)


@pytest.mark.skipif(ocr.find_tesseract() is None, reason="no Tesseract here")
def test_many_pictures_are_read_and_each_failure_stands_alone(tmp_path: Path) -> None:
    jobs = [
        job(tmp_path, "screen", saved(screen()), media_type="image/png"),
        job(tmp_path, "ünï cödé,\n", saved(screen(("beam dumped",)))),
        job(tmp_path, "cut", saved(screen())[:500]),
        job(
            tmp_path,
            "scan",
            saved(screen(ground="white", ink="black"), "PDF", resolution=200),
            media_type="application/pdf",
            page=1,
        ),
        OcrJob("gone", tmp_path / "gone"),
    ]
    found = {each.sha256: result for each, result in recognise(iter(jobs), LIMITS, workers=2)}
    assert set(found) == {each.sha256 for each in jobs}
    assert isinstance(found["screen"], OcrResult)
    assert names(found["screen"]) == NAMES
    assert found["ünï cödé,\n"].text == "beam dumped"
    assert names(found["scan"]) == NAMES
    assert isinstance(found["cut"], OcrFailure)
    assert "broken" in found["cut"].reason
    assert found["cut"].permanent
    assert "No such file" in found["gone"].reason
    assert not found["gone"].permanent


def read(folder: Path, *orders: bytes, **options: float) -> list[OcrResult | OcrFailure]:
    jobs = [job(folder, str(number), order) for number, order in enumerate(orders)]
    found = {each.sha256: result for each, result in recognise(jobs, LIMITS, workers=1, **options)}
    return [found[each.sha256] for each in jobs]


@pytest.mark.parametrize(
    ("order", "said", "permanent"),
    [
        (b"hang", "no sign of life for 1 s", False),
        (b"grow", "took more than 300 MB", True),
        (b"crash", "crashed (SIGSEGV)", True),
        (b"killed", "ended from outside (SIGKILL)", False),
        (b"nonsense", "answered with nonsense", True),
    ],
)
def test_a_picture_costs_itself_alone(
    order: bytes, said: str, permanent: bool, bad: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_MEMORY", 300_000_000)
    before = set(psutil.Process().children())
    failed, after = read(tmp_path, order, b"next", timeout=1 if order == b"hang" else 30)
    assert isinstance(failed, OcrFailure)
    assert said in failed.reason
    assert failed.remedy
    assert failed.permanent == permanent
    assert isinstance(after, OcrResult)
    assert after.text == "next"
    assert set(psutil.Process().children()) <= before


def test_a_reader_that_shows_signs_of_life_may_take_long(bad: None, tmp_path: Path) -> None:
    (found,) = read(tmp_path, b"alive", timeout=1.5)
    assert isinstance(found, OcrResult)
    assert found.text == "alive"


def test_one_reader_reads_one_picture_after_another(bad: None, tmp_path: Path) -> None:
    found = read(tmp_path, *(b"%d" % number for number in range(8)))
    assert [result.text for result in found if isinstance(result, OcrResult)] == [str(number) for number in range(8)]
    assert len({result.engine for result in found if isinstance(result, OcrResult)}) == 1


def test_items_are_taken_as_needed_and_readers_end_with_the_iterator(tmp_path: Path) -> None:
    taken: list[int] = []

    def jobs() -> Iterator[OcrJob]:
        for number in range(1000):
            taken.append(number)
            yield OcrJob(str(number), tmp_path / "gone")

    results = recognise(jobs(), LIMITS, workers=1)
    next(results)
    results.close()
    assert len(taken) <= 4
