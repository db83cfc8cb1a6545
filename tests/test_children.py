"""Processes that read strange files run the project's code, whatever lies where the command was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from aps_rag_pipeline.content.children import Child


def test_a_module_in_the_working_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "msgspec.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\nraise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    child = Child("aps_rag_pipeline.content.parse_worker")
    child.kill()
    assert not (tmp_path / "executed").exists()
