"""What commands show of sources: text, never markup or orders to the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from aps_rag_pipeline.cli import app
from aps_rag_pipeline.sync import state
from tests.small_facility import kicker_facility

ODD = "the service said [/nope] [red]stop[/red] \x1b[2J\x1b]0;owned\x07"


@pytest.mark.parametrize("command", [["status"], ["sync", "--dry-run"]])
def test_what_a_source_says_in_an_error_is_shown_and_not_obeyed(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aps_rag_pipeline.sync import preview

    facility = kicker_facility(tmp_path)
    monkeypatch.setenv("APS_RAG_CONFIG", str(facility.config_path))
    facility.sync()
    told = state.read_feed(facility.home, "bely", "logbook")
    told.error = ODD
    state.write_feed(facility.home, told)
    real = preview.preview
    monkeypatch.setattr(preview, "preview", lambda *a: [{**row, "error": ODD} for row in real(*a)])
    shown = CliRunner().invoke(app, command, env={"COLUMNS": "400"})
    assert shown.exception is None or isinstance(shown.exception, SystemExit)
    assert "[/nope] [red]stop[/red]" in shown.output
    assert r"\x1b[2J" in shown.output
    assert "\x1b" not in shown.output


def test_an_error_line_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["status", "-c", str(tmp_path / "no\x1b[2J.yaml")])
    assert "\x1b[2J" not in shown.output
