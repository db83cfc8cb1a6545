"""The demo facility as files: reproducible, of the size that was asked for, in two sets of words."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from aps_rag_pipeline.demo import load_truth, write
from aps_rag_pipeline.demo.phrases import both_sides, table
from aps_rag_pipeline.demo.sizes import counts
from aps_rag_pipeline.demo.truth import QUESTION_TYPES
from aps_rag_pipeline.settings import Settings

BANK = ("faults", "incident", "routine", "extras", "facts", "concepts", "documents", "questions")


def tree(folder: Path) -> dict[str, str]:
    """Digest of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "shown"
    write(out, seed=11, records=300)
    return out


def test_the_same_seed_writes_the_same_bytes(demo: Path, tmp_path: Path) -> None:
    summary = write(tmp_path / "again", seed=11, records=300)
    assert tree(tmp_path / "again") == tree(demo)
    assert summary.records == 300
    write(tmp_path / "other", seed=12, records=300)
    first, other = tree(demo), tree(tmp_path / "other")
    assert first["feeds/work_requests/requests_2025.csv"] != other["feeds/work_requests/requests_2025.csv"]


def test_writing_again_replaces_feeds_and_leaves_the_home(demo: Path, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    write(out, seed=3, records=300)
    (out / "home").mkdir()
    (out / "home" / "catalog.sqlite").write_text("kept")
    (out / "feeds" / "wiki" / "stray.md").write_text("gone")
    write(out, seed=11, records=300)
    assert not (out / "feeds" / "wiki" / "stray.md").exists()
    assert (out / "home" / "catalog.sqlite").read_text() == "kept"
    assert tree(out / "feeds") == tree(demo / "feeds")


def test_a_folder_with_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="holds no demo facility"):
        write(tmp_path, records=300)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("records", [0, 299])
def test_too_few_records_are_refused_before_anything_is_written(records: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 300"):
        write(tmp_path / "demo", records=records)
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("records", [300, 301, 3000, 150_000])
def test_sizes_add_up(records: int) -> None:
    sizes = counts(records)
    assert sum(sizes.values()) == records
    assert all(size > 0 for size in sizes.values())
    assert max(sizes, key=lambda source: sizes[source]) == "bely"


def test_the_settings_are_accepted_and_name_every_source(demo: Path) -> None:
    settings = Settings.load(demo / "facility.yaml")
    assert Counter(feed.source for feed in settings.feeds) == {**dict.fromkeys(settings.sources(), 1), "icms": 2}
    assert len(settings.sources()) == 9
    assert settings.time_zone == "America/Chicago"
    assert [shift.name for shift in settings.shifts] == ["owl", "day", "swing"]
    for feed in settings.feeds:
        assert feed.location.is_dir(), feed.name
        assert feed.sidecar is None or feed.sidecar.is_file()


def test_the_truth_has_enough_of_everything(demo: Path) -> None:
    truth = load_truth(demo)
    answerable = Counter(question.type for question in truth.questions if question.answerable)
    assert set(answerable) == set(QUESTION_TYPES)
    assert min(answerable.values()) >= 12
    assert sum(not question.answerable for question in truth.questions) >= 30
    assert len({question.id for question in truth.questions}) == len(truth.questions)
    assert len({question.text for question in truth.questions}) == len(truth.questions)
    assert {identifier.kind for identifier in truth.identifiers} == {"key", "pv", "number", "device", "content_id"}
    assert len(truth.incidents) == 14
    for planted in (truth.late, truth.duplicates, truth.corrections, truth.contradictions, truth.screenshots):
        assert len(planted) >= 3
    assert {credential.kind for credential in truth.credentials} == {
        "password", "token", "basic_auth", "aws_key", "private_key",
    }  # fmt: skip


def test_incidents_are_told_apart(demo: Path) -> None:
    truth = load_truth(demo)
    assert len({incident.device for incident in truth.incidents}) == len(truth.incidents)
    assert len({incident.serial for incident in truth.incidents}) == len(truth.incidents)
    assert len({incident.started[:13] for incident in truth.incidents}) == len(truth.incidents)
    whole = [incident for incident in truth.incidents if {"log", "chat", "downtime"} <= set(incident.keys)]
    assert len(whole) >= len(truth.incidents) // 2


# two sets of words


def words(phrase: str) -> list[str]:
    return re.findall(r"[a-z]+", re.sub(r"\{\w+\}", " ", phrase.lower()))


def runs(phrases: list[str], length: int) -> set[tuple[str, ...]]:
    """Every run of words of a length that stands in a phrase."""
    found = set()
    for phrase in phrases:
        said = words(phrase)
        found |= {tuple(said[start : start + length]) for start in range(len(said) - length + 1)}
    return found


def test_the_two_sets_share_no_phrase_and_no_five_words_in_a_row() -> None:
    # Names of categories (RF, Water) are facts, not wording.
    pairs = [pair for name in BANK for pair in both_sides(table(name)) if pair[0] != pair[1]]
    shown = [phrase for pair in pairs for phrase in _texts(pair[0])]
    held = [phrase for pair in pairs for phrase in _texts(pair[1])]
    assert len(shown) > 500
    assert len(held) > 500
    long_ones = {phrase for phrase in shown if len(words(phrase)) > 2}
    assert not long_ones & set(held)
    assert runs(shown, 5) & runs(held, 5) == set()


def _texts(value: list[str] | str) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def test_a_held_out_demo_asks_in_other_words_about_other_texts(demo: Path, tmp_path: Path) -> None:
    write(tmp_path / "held", seed=11, records=300, held_out=True)
    shown, held = load_truth(demo), load_truth(tmp_path / "held")
    assert held.held_out
    assert not {question.text for question in shown.questions} & {question.text for question in held.questions}
    prose = {truth.held_out: [i.symptom for i in truth.incidents] for truth in (shown, held)}
    assert not runs(prose[False], 4) & runs(prose[True], 4)


def test_ids_of_the_log_rise_with_time(demo: Path) -> None:
    truth = load_truth(demo)
    late = {found.key: found for found in truth.late}
    assert all(found.entered > found.happened for found in late.values())
    keyed = sorted((int(found.key.split(":")[1]), found.entered) for found in late.values())
    assert all(first[1][:10] <= second[1][:10] for first, second in pairwise(keyed))
