"""Another model or chunking: prepared beside normal work, switched to in one release, never mixed with the old one."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aps_rag_pipeline import clock
from aps_rag_pipeline.models import ModelError
from aps_rag_pipeline.models.hashing import HashEncoder
from aps_rag_pipeline.settings import Settings, SettingsError
from aps_rag_pipeline.settings_file import set_value, with_value
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.lock import HomeTakenError, WriterLock
from aps_rag_pipeline.stores.tables import chunks_table
from aps_rag_pipeline.stores.vectors import LanceTables
from aps_rag_pipeline.sync import indexes, pipeline, reindex
from aps_rag_pipeline.sync.model import ConfiguredModel
from aps_rag_pipeline.sync.preparation import read_preparation
from aps_rag_pipeline.sync.purge import purge
from aps_rag_pipeline.sync.workspace import NoProgress, Progress
from query import Corpus
from query.results import Hit
from tests.small_facility import Facility, tree

T = TypeVar("T")
OLD, NEW = "test:hash-32", "test:hash-48"
FILE = """\
# The ring's own settings.
facility: Test ring   # as people call it
time_zone: America/Chicago
home: home
models:
  # asked of the model group in March
  embedding: "test:hash-32"   # small, for now
limits: {lock_timeout_s: 0.2, retention_hours: 0}

feeds:
  - {name: logbook, source: bely, location: log}
  - {name: requests, source: work_requests, location: requests}
"""


class Ring(Facility):
    """A facility whose settings are those of its file, as the command line sees them."""

    @property
    def file(self) -> Path:
        return self.root / "facility.yaml"

    @property
    def settings(self) -> Settings:
        return Settings.load(self.file)

    def reindex(self, model: str | None = NEW, progress: Progress | None = None) -> int:
        """Gives how many texts were embedded while preparing."""
        target = reindex.aim(self.file, model)
        with reindex.open_preparation(target, progress or NoProgress()) as workspace:
            embedded = reindex.prepare(workspace, target)
            reindex.switch(workspace, target)
        return embedded

    def vectors(self, name: str) -> int:
        fingerprint = HashEncoder(name).description.fingerprint
        with self.workspace() as workspace:
            return int(workspace.catalog.value("select count(*) from embeddings where model = ?", (fingerprint,)))

    def texts(self) -> int:
        with self.workspace() as workspace:
            return int(workspace.catalog.value("select count(distinct hash) from chunks"))


class Meanwhile:
    """Progress that lets something happen once, between two batches of a preparation."""

    def __init__(self, happen: Callable[[], None], at: int = 1) -> None:
        self.happen, self.at = happen, at
        self.happened = False

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        for number, item in enumerate(items):
            if description == "preparing vectors" and number == self.at and not self.happened:
                self.happened = True
                self.happen()
            yield item


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ring:
    monkeypatch.setattr(indexes, "ENCODE_BATCH", 8)
    monkeypatch.setattr(reindex, "_RECORDS", 5)
    made = Ring(tmp_path)
    made.log = {
        f"shift-{n}": {100 * n + i: f"Entry {i} of shift {n}: klystron K{n}{i} tripped" for i in range(4)}
        for n in range(1, 6)
    }
    made.requests = {
        str(20000 + i): {"title": f"Replace pump P{i}", "description": f"The ion pump P{i} draws high current"}
        for i in range(15)
    }
    made.file.write_text(FILE)
    made.write().sync()
    return made


def demand_one_model(ring: Ring, name: str) -> None:
    """The newest release is of this model: its manifest, its table, and every single vector."""
    encoder = HashEncoder(name)
    with releases.open_release(ring.home) as release:
        model = release.manifest.model
        assert (model.name, model.fingerprint) == (name, encoder.description.fingerprint)
        assert [table for table in release.manifest.tables if table.startswith("chunks")] == [
            chunks_table(model.fingerprint)
        ]
        rows = release.chunks().to_arrow()
    assert set(rows["key"].to_pylist()) == set(ring.live())
    found = np.asarray(rows["vector"].to_pylist(), dtype=np.float32)
    wanted = encoder.encode_passages(rows["text"].to_pylist())
    assert found.shape == wanted.shape
    assert float((found * wanted).sum(axis=1).min()) > 0.999


def answers(ring: Ring) -> list[tuple[str, float]]:
    with Corpus.open(ring.home, None) as corpus:
        return [(hit.key, hit.score) for hit in corpus.search("ion pump P7 high current", mode="dense").hits]


def found(ring: Ring, text: str) -> list[Hit]:
    with Corpus.open(ring.home, None) as corpus:
        return corpus.search(text).hits


def test_the_old_release_serves_unmoved_until_the_new_one_is_whole(ring: Ring) -> None:
    before, seen = answers(ring), []

    def look() -> None:
        seen.append(answers(ring))
        demand_one_model(ring, OLD)

    assert ring.reindex(progress=Meanwhile(look, at=3)) == ring.texts() == 35
    assert seen == [before]
    demand_one_model(ring, NEW)
    assert answers(ring)[0][0] == "WRQ:20007"
    assert releases.numbers(ring.home) == [2]


def test_edits_made_while_preparing_are_served_at_once_and_after_the_switch(ring: Ring) -> None:
    def edit() -> None:
        ring.log["shift-1"][100] = "The arc detector of K10 was dirty, cleaned it"
        ring.log["shift-9"] = {900: "Beam back at 102 mA after the water leak"}
        del ring.log["shift-2"][200]
        ring.write().sync()
        demand_one_model(ring, OLD)
        assert any("arc detector" in text for text in texts())

    def texts() -> list[str]:
        with releases.open_release(ring.home) as release:
            found: list[str] = release.chunks().to_arrow()["text"].to_pylist()
            return found

    ring.reindex(progress=Meanwhile(edit, at=4))
    demand_one_model(ring, NEW)
    assert any("arc detector" in text for text in texts())
    assert "BELY:900" in ring.live()
    assert "BELY:200" not in ring.live()


def test_a_killed_preparation_is_gone_on_with(ring: Ring) -> None:
    killed = command(ring, "--model", NEW, "--yes", batch=8, APS_RAG_FAILPOINT="vectors.commit.after:2")
    assert killed.returncode == -signal.SIGKILL
    kept = ring.vectors(NEW)
    assert kept == 16
    assert ring.file.read_text() == FILE
    demand_one_model(ring, OLD)
    assert ring.sync()[1].moved == 0
    assert ring.reindex() == 35 - kept
    demand_one_model(ring, NEW)


@pytest.mark.parametrize(
    "place",
    ["stage.redo.before", "chunks.commit.after", "lance.create.after", "dense.batch.after", "publish.tag.after"],
)
def test_a_switch_that_was_killed_is_completed_by_the_next_sync(ring: Ring, place: str) -> None:
    killed = command(ring, "--model", NEW, "--yes", APS_RAG_FAILPOINT=place)
    assert killed.returncode == -signal.SIGKILL
    demand_one_model(ring, OLD)
    assert ring.settings.models.embedding == NEW
    reports = {report.stage: report for report in ring.sync()[2]}
    assert reports["embeddings"].counts["embedded"] == 0
    demand_one_model(ring, NEW)
    assert ring.vectors(OLD) == 0  # with the old release
    assert read_preparation(ring.home) is None


def test_comments_of_the_settings_survive(ring: Ring) -> None:
    ring.file.chmod(0o640)
    ring.reindex()
    assert ring.file.read_text() == FILE.replace('"test:hash-32"', NEW_AS_YAML)
    assert stat.S_IMODE(ring.file.stat().st_mode) == 0o640


NEW_AS_YAML = yaml.safe_dump([NEW], default_flow_style=True).strip()[1:-1]


def test_an_estimate_changes_nothing(ring: Ring) -> None:
    before = tree(ring.root)
    done = command(ring, "--model", NEW, "--estimate", "--json")
    found = json.loads(done.stdout)
    assert (found["records"], found["chunks"], found["ready"]) == (35, 35, 0)
    assert found["backend"] == "hash"
    assert found["chunks_per_s"] > 0
    assert found["measured_chunks"] == 35
    said = command(ring, "--model", NEW, "--estimate").stdout
    assert said.startswith(f"{NEW}: 35 chunks of 35 records, 0 embedded already\n")
    assert "measured by 35 chunks" in said
    assert "MB more on disk" in said
    assert tree(ring.root) == before


@dataclass
class Metered:
    """A model whose encoder takes `second_a_call`, and a second for so many characters, by a clock of its own."""

    characters_a_second: float
    second_a_call: float = 0.0
    backend: str = "metered"
    now: float = 0.0

    def encoder(self) -> Metered:
        return self

    def perf_counter(self) -> float:
        return self.now

    def encode_passages(self, texts: list[str]) -> None:
        self.now += self.second_a_call + sum(map(len, texts)) / self.characters_a_second

    def measured(self, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, float, int]:
        monkeypatch.setattr(reindex, "time", self)
        return reindex._measure(cast(ConfiguredModel, self), texts)


#: Records of the first kind of source are short, those of the last long.
LENGTHS = [*[40] * 6000, *range(40, 2000), *[2000] * 3000]


@pytest.mark.parametrize("speed", [1e9, 100_000, 10_000, 2_000])
def test_an_estimate_measures_texts_of_all_lengths(monkeypatch: pytest.MonkeyPatch, speed: float) -> None:
    texts = ["x" * length for length in LENGTHS]
    model = Metered(speed)
    backend, rate, measured = model.measured(texts, monkeypatch)
    assert backend == "metered"
    assert rate == pytest.approx(len(texts) * speed / sum(LENGTHS), rel=0.1)
    assert 16 <= measured <= indexes.ENCODE_BATCH
    assert measured / rate > 3 or measured == indexes.ENCODE_BATCH
    assert model.now < 12  # the texts that tell how many can be measured among it


def test_an_estimate_takes_what_a_call_costs_for_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    _, rate, measured = Metered(1e9, second_a_call=1.0).measured(["x" * length for length in LENGTHS], monkeypatch)
    assert measured == indexes.ENCODE_BATCH  # as many together as preparing does
    assert rate == pytest.approx(indexes.ENCODE_BATCH, rel=0.1)
    assert Metered(1e9).measured(["one", "two"], monkeypatch)[2] == 2


def test_an_estimate_counts_what_is_there_already(ring: Ring) -> None:
    command(ring, "--model", NEW, "--yes", batch=8, APS_RAG_FAILPOINT="vectors.commit.after:2")
    assert json.loads(command(ring, "--model", NEW, "--estimate", "--json").stdout)["ready"] == 16


def test_the_same_model_again_changes_nothing(ring: Ring) -> None:
    before = tree(ring.root)
    for arguments in ((), ("--model", OLD)):
        done = command(ring, *arguments, "--yes")
        assert done.returncode == 0
        assert "nothing to do" in done.stdout
    lock = ring.home.state / "reindex.lock"
    assert lock.read_bytes() == b""
    lock.unlink()
    assert tree(ring.root) == before


def test_the_question_is_asked_and_a_no_changes_nothing(ring: Ring) -> None:
    done = command(ring, "--model", NEW, answer="n\n")
    assert done.returncode == 1
    assert "35 chunks of 35 records, 0 embedded already" in done.stderr
    assert (ring.vectors(NEW), ring.file.read_text()) == (0, FILE)
    done = command(ring, "--model", NEW, "--json", answer="y\n")
    assert json.loads(done.stdout) | {"prepare_s": 0, "switch_s": 0} == {
        "state": "switched", "model": NEW, "embedded": 35, "release": 2, "prepare_s": 0, "switch_s": 0
    }  # fmt: skip


@pytest.mark.parametrize("name", ["test:hash-nine", "acme/nowhere", "./nowhere"])
def test_a_model_that_is_not_here_is_an_error_before_any_work(ring: Ring, name: str) -> None:
    before = tree(ring.root, without=())
    with pytest.raises(ModelError):
        ring.reindex(name)
    assert tree(ring.root, without=()) == before
    assert command(ring, "--model", name, "--yes").returncode == 1


def test_a_value_from_the_environment_is_refused_before_any_work(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APS_RAG_MODELS__EMBEDDING", OLD)
    with pytest.raises(SettingsError, match="unset APS_RAG_MODELS__EMBEDDING"):
        ring.reindex()
    monkeypatch.delenv("APS_RAG_MODELS__EMBEDDING")
    ring.file.chmod(0o444)
    with pytest.raises(SettingsError, match="not writable"):
        ring.reindex()
    assert ring.vectors(NEW) == 0


def test_a_home_without_a_sync_and_a_second_reindex_are_refused(ring: Ring, tmp_path: Path) -> None:
    target = reindex.aim(ring.file, NEW)
    with (
        reindex.open_preparation(target, NoProgress()),
        pytest.raises(HomeTakenError, match="another `aps-rag reindex`"),
        reindex.open_preparation(target, NoProgress()),
    ):
        pass
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/facility.yaml").write_text(FILE)
    with pytest.raises(releases.NoReleaseError, match="nothing has been synced"):
        reindex.aim(tmp_path / "empty/facility.yaml", NEW)
    assert not (tmp_path / "empty/home").exists()


def test_a_writer_in_the_way_leaves_the_switch_to_the_next_sync(ring: Ring) -> None:
    with WriterLock(ring.home, 0, "a long sync"), pytest.raises(HomeTakenError, match="a long sync"):
        ring.reindex()
    assert ring.settings.models.embedding == NEW
    demand_one_model(ring, OLD)
    ring.sync()
    demand_one_model(ring, NEW)


STALE_SYNC = """
import sys
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.sync import pipeline
with pipeline.open_workspace(Settings.load(sys.argv[1])) as workspace:
    print("settings read", flush=True)
    sys.stdin.readline()
    pipeline.sync(workspace)
"""


def test_a_sync_that_read_its_settings_before_a_switch_keeps_to_the_new_model(ring: Ring) -> None:
    stale = subprocess.Popen(
        [sys.executable, "-c", STALE_SYNC, ring.file],
        env={name: value for name, value in os.environ.items() if not name.startswith("APS_RAG")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert stale.stdout is not None
    assert stale.stdout.readline() == "settings read\n"
    ring.reindex()
    ring.log["shift-1"][100] = "Entry written meanwhile"
    ring.write()
    stale.communicate("go on\n", timeout=60)
    assert stale.returncode == 0
    demand_one_model(ring, NEW)
    assert ring.vectors(OLD) == 0
    assert any("written meanwhile" in hit.snippet for hit in found(ring, "entry written meanwhile"))


def test_a_run_that_read_its_settings_before_a_switch_keeps_to_the_new_model(ring: Ring) -> None:
    from dagster import build_init_resource_context

    from assets.resources import Facility as Resource

    resource = Resource(config_path=str(ring.file))
    with resource.yield_for_execution(build_init_resource_context()) as facility:
        assert facility.model().description.name == OLD
        ring.reindex()
        assert facility.writing("a run").settings.models.embedding == NEW
        assert facility.model().description.name == NEW
        with pytest.raises(HomeTakenError, match="a run"):
            WriterLock(ring.home, 0, "another").acquire()
    WriterLock(ring.home, 0, "another").acquire().release()


def test_a_purge_that_read_its_settings_before_a_switch_keeps_to_the_new_model(ring: Ring) -> None:
    with ring.workspace() as workspace:
        ring.reindex()
        purge(workspace, "BELY:503")
    demand_one_model(ring, NEW)


def test_settings_that_became_unreadable_stop_a_run_under_the_lock(ring: Ring) -> None:
    with ring.workspace() as workspace:
        ring.file.write_text("models: [\n")
        with pytest.raises(SettingsError, match="not YAML"):
            pipeline.sync(workspace)
    ring.file.write_text(FILE)
    demand_one_model(ring, OLD)
    ring.sync()


def test_the_old_models_table_and_vectors_go_when_its_release_goes(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    ring.file.write_text(FILE.replace("retention_hours: 0", "retention_hours: 24"))
    old = chunks_table(HashEncoder(OLD).description.fingerprint)
    ring.reindex()
    assert releases.numbers(ring.home) == [1, 2]
    assert old in LanceTables(ring.home).names()
    assert ring.vectors(OLD) == 35  # the way back is short as long as the old release is kept
    later = clock.now() + timedelta(hours=25)
    monkeypatch.setattr(clock, "now", lambda: later)
    ring.log["shift-1"][100] = "Another text"
    ring.write().sync()
    assert 1 not in releases.numbers(ring.home)
    assert old not in LanceTables(ring.home).names()
    assert ring.vectors(OLD) == 0


def test_the_way_back_embeds_nothing_anew_while_the_old_release_is_kept(ring: Ring) -> None:
    ring.file.write_text(FILE.replace("retention_hours: 0", "retention_hours: 24"))
    ring.reindex()
    ring.log["shift-1"][100] = "Another text"
    ring.write().sync()
    assert ring.reindex(OLD) == 1
    demand_one_model(ring, OLD)
    assert answers(ring)[0][0] == "WRQ:20007"


def test_the_way_back_after_all_was_collected(ring: Ring) -> None:
    ring.reindex()
    del ring.log["shift-2"][200]
    ring.write().sync()
    ring.sync()
    assert ring.vectors(OLD) == 0
    assert ring.reindex(OLD) == 34
    demand_one_model(ring, OLD)


def test_prepared_vectors_outlive_collections_but_not_a_purge(ring: Ring) -> None:
    counted = []

    def collections() -> None:
        ring.log["shift-1"][100] = "Another text"
        ring.write().sync()
        counted.append(ring.vectors(NEW))
        with ring.workspace() as workspace:
            purge(workspace, "BELY:503")
        counted.append(ring.vectors(NEW))

    target = reindex.aim(ring.file, NEW)
    with reindex.open_preparation(target, Meanwhile(collections, at=5)) as workspace:
        reindex.prepare(workspace, target)
    assert counted[0] >= 8
    assert counted[1] == 0
    assert ring.vectors(NEW) == ring.texts() == 34  # and were made again
    ring.reindex()
    demand_one_model(ring, NEW)


def test_an_abandoned_preparation_lapses(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    command(ring, "--model", NEW, "--yes", batch=8, APS_RAG_FAILPOINT="vectors.commit.after:2")
    later = clock.now() + timedelta(days=15)
    monkeypatch.setattr(clock, "now", lambda: later)
    ring.log["shift-1"][100] = "Another text"
    ring.write().sync()
    assert ring.vectors(NEW) == 0
    assert ring.vectors(OLD) == 35


def test_another_chunking_is_prepared_by_the_model_in_use(ring: Ring) -> None:
    ring.log["shift-1"][100] = " ".join(f"Word {n} of a long entry." for n in range(400))
    ring.write().sync()
    chunks = ring.texts()
    ring.file.write_text(FILE + "chunking: {passage_words: 100, chunk_tokens: 80}\n")
    embedded = ring.reindex(None)
    assert 0 < embedded < ring.texts()
    assert ring.texts() > chunks
    assert ring.vectors(OLD) == ring.texts()  # nothing was embedded in the switch, and old texts were dropped
    demand_one_model(ring, OLD)
    assert ring.reindex(None) == 0


def test_settings_that_moved_while_preparing_are_not_switched_to(ring: Ring) -> None:
    def edit() -> None:
        ring.file.write_text(FILE + "chunking: {chunk_tokens: 90}\n")

    with pytest.raises(SettingsError, match="was changed while"):
        ring.reindex(progress=Meanwhile(edit))
    assert ring.settings.models.embedding == OLD


def command(
    ring: Ring, *arguments: str, batch: int = 1024, answer: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """`aps-rag reindex` in a process of its own."""
    code = (
        "from aps_rag_pipeline.sync import indexes, reindex\n"
        f"indexes.ENCODE_BATCH, reindex._RECORDS = {batch}, 5\n"
        "from aps_rag_pipeline.cli import main\nmain()"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("APS_RAG")}
    return subprocess.run(
        [sys.executable, "-c", code, "reindex", *arguments],
        cwd=ring.root,
        env={**env, "PYTHONPATH": str(Path(__file__).resolve().parents[1]), **environment},
        input=answer,
        capture_output=True,
        text=True,
        check=False,
    )


# -- one value in the settings file

PLACE = ("models", "embedding")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("models:\n  embedding: a  # small\n  threads: 2\n", "models:\n  embedding: b  # small\n  threads: 2\n"),
        ("models: {threads: 2, embedding: 'a'} # x\n", "models: {threads: 2, embedding: b} # x\n"),
        ("models: {threads: 2}\n", "models: {embedding: b, threads: 2}\n"),
        ("models: {}\n", "models: {embedding: b}\n"),
        ("models:\n    # how many\n    threads: 2\n", "models:\n    # how many\n    embedding: b\n    threads: 2\n"),
        ("models:   # see below\nhome: h\n", "models:   # see below\n  embedding: b\nhome: h\n"),
        ("models:\n  embedding:   # none yet\nhome: h\n", "models:\n  embedding: b   # none yet\nhome: h\n"),
        ("models:\n  embedding: |\n    a\n  threads: 2\n", "models:\n  embedding: b\n  threads: 2\n"),
        ("home: h\n# models:\n#   embedding: a\n", "home: h\n# models:\n#   embedding: a\nmodels:\n  embedding: b\n"),
        ("home: h", "home: h\nmodels:\n  embedding: b\n"),
        ("# nothing\n", "# nothing\nmodels:\n  embedding: b\n"),
        ("", "models:\n  embedding: b\n"),
        ("home: h\r\nmodels:\r\n  embedding: a\r\n", "home: h\r\nmodels:\r\n  embedding: b\r\n"),
        ("\ufeffhome: h\r\n", "\ufeffhome: h\r\nmodels:\r\n  embedding: b\r\n"),
        ("{home: h}\n", "{models: {embedding: b}, home: h}\n"),
        ('"models":\n  "embedding": >-\n    a\n    b\nhome: h\n', '"models":\n  "embedding": b\nhome: h\n'),
        ("facility: Über ☢\nmodels: {embedding: a}\n", "facility: Über ☢\nmodels: {embedding: b}\n"),
    ],
)  # fmt: skip
def test_one_value_is_set_and_nothing_else_moves(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "facility.yaml"
    file.write_bytes(before.encode())
    assert set_value(file, PLACE, "b")
    assert file.read_bytes().decode() == after
    assert not set_value(file, PLACE, "b")
    assert [path.name for path in tmp_path.iterdir()] == ["facility.yaml"]


@pytest.mark.parametrize(
    "text",
    [
        "facility: &x a\nmodels: {embedding: *x}\n",
        "models: {embedding: &x a}\nfacility: *x\n",
        "home: h\n...\n",
        "models: [\n",
    ],
)
def test_what_cannot_be_set_without_moving_more_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "facility.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError):
        set_value(file, PLACE, "b")
    assert file.read_text() == text


@given(st.text(min_size=1).filter(str.isprintable))
def test_any_name_is_read_back(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    for text in ("models: {embedding: a, threads: 1}\n", "models:\n  embedding: a\n"):
        file.write_text(text)
        set_value(file, PLACE, name)
        assert Settings.load(file).models.embedding == name


def test_a_link_stays_a_link_and_a_check_writes_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "ring.yaml").write_text("models: {embedding: a}\n")
    file = tmp_path / "facility.yaml"
    file.symlink_to(kept / "ring.yaml")
    assert with_value(file, PLACE, "b").models.embedding == "b"
    assert file.read_text() == "models: {embedding: a}\n"
    set_value(file, PLACE, "b")
    assert file.is_symlink()
    assert (kept / "ring.yaml").read_text() == "models: {embedding: b}\n"
