"""Another embedding model or another chunking, prepared beside normal work and then switched to in one release.

Preparing needs no writer lock: the chunks that the new model would have are cut in memory and their vectors put into
the catalog, batch by batch, while syncs go on with the old model. A run that died is gone on with by the next. Then the
settings name the new model, and the ordinary stages find nearly every vector there. Until their release is published
the old one serves; a switch that died is completed by the next sync, since the settings ask for it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

from aps_rag_pipeline.content.chunks import text_hash
from aps_rag_pipeline.content.passages import cut
from aps_rag_pipeline.models import Encoder, ModelError
from aps_rag_pipeline.models.encoder import Vectors
from aps_rag_pipeline.settings import Models, Settings, SettingsError
from aps_rag_pipeline.settings_file import set_value, with_value
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.catalog import Catalog, from_iso, marks, unpack
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.lock import HomeTakenError, WriterLock
from aps_rag_pipeline.sync import indexes, pipeline
from aps_rag_pipeline.sync.model import ConfiguredModel, configured_model
from aps_rag_pipeline.sync.names import CHUNKS, EMBEDDINGS, PASSAGES
from aps_rag_pipeline.sync.preparation import Cut, cut_of, end_preparation, note_preparation, present_cut
from aps_rag_pipeline.sync.text import bodies, known_names, open_chunker, picture_reader
from aps_rag_pipeline.sync.workspace import ChangedRecord, Progress, StageReport, Workspace, changed_records

T = TypeVar("T")

_PLACE = ("models", "embedding")
#: Records whose chunks are cut together.
_RECORDS = 200
_LONGEST_LOOKUP = 5000
_SAMPLED_RECORDS = 2000
#: Within about so long the encoder is measured: first by so many chunks, then by as many as fit in.
_MEASURED_S = 10.0
_MEASURED_FIRST = 16
#: How long a batch waits for a sync that is writing the catalog.
_PATIENCE_S = 600


@dataclass(frozen=True)
class Target:
    """What is wanted: `settings` as they will be, and the file that must say so."""

    file: Path
    settings: Settings
    model: ConfiguredModel
    sets_value: bool

    @property
    def cut(self) -> Cut:
        return cut_of(self.settings, self.model)

    @property
    def fingerprint(self) -> str:
        return self.model.description.fingerprint


@dataclass(frozen=True)
class Estimate:
    """What preparing would take. Counts are of distinct texts; where not every record was looked at, they are scaled.

    `chunks_per_s` is 0 where nothing is missing, and was measured by `measured_chunks`; `disk_mb` is needed beside what
    is there, until the old release and its tables are collected.
    """

    model: str
    records: int
    records_looked_at: int
    chunks: int
    ready: int
    backend: str
    chunks_per_s: float
    measured_chunks: int
    minutes: float
    disk_mb: float


def aim(file: Path, name: str | None) -> Target:
    """What `aps-rag reindex [--model NAME]` asks for; without a name, what the settings say by now.

    Raises:
        SettingsError: the model cannot be set in the file.
        ModelError: there is no such model on this machine.
        HomeError: nothing has been synced here.
    """
    settings = Settings.load(file)
    home = Home(settings.home)
    if not home.catalog.is_file():
        raise releases.NoReleaseError(f"{home.root}: nothing has been synced yet; run `aps-rag sync`")
    if name is None or name == settings.models.embedding:
        return Target(file, settings, configured_model(settings, home), False)
    if Path(name).expanduser().is_dir():
        name = str(Path(name).expanduser().absolute())  # the next sync may start in another folder
    wanted = configured_model(settings.model_copy(update={"models": _naming(settings, name)}), home)
    if wanted.description.fingerprint == _fingerprint(settings, home):
        return Target(file, settings, wanted, False)
    return Target(file, with_value(file, _PLACE, name), wanted, True)


def is_done(catalog: Catalog, target: Target) -> bool:
    """Whether the newest release has these vectors of these chunks and the settings ask for nothing else."""
    newest = releases.latest(Home(target.settings.home))
    if target.sets_value or newest is None or present_cut(catalog) != target.cut:
        return False
    wanted = {PASSAGES: target.cut.passages, CHUNKS: target.cut.chunks, EMBEDDINGS: target.fingerprint}
    return all(newest.versions.get(stage) == version for stage, version in wanted.items())


@contextmanager
def open_preparation(target: Target, progress: Progress, *, alone: bool = True) -> Iterator[Workspace]:
    """A workspace of the wanted settings, whose catalog has patience with a sync that is writing it.

    Raises:
        HomeTakenError: `alone`, and another process is preparing vectors in this home.
    """
    home = Home(target.settings.home).create()
    with (
        _only_one(home) if alone else nullcontext(),
        Catalog(home, timeout_s=_PATIENCE_S) as catalog,
    ):
        yield Workspace(target.settings, home, catalog, progress)


@contextmanager
def _only_one(home: Home) -> Iterator[None]:
    handle = os.open(home.state / "reindex.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HomeTakenError(f"{home.root}: another `aps-rag reindex` is at work; wait for it") from None
        yield
    finally:
        os.close(handle)


def estimate(workspace: Workspace, target: Target) -> Estimate:
    """Look at a sample of the records and measure the encoder on some of their texts. Changes nothing."""
    catalog, description = workspace.catalog, target.model.description
    live = "from records where removed = 0 and access <> '[]'"
    total = int(catalog.value(f"select count(*) {live}"))
    step = max(total // _SAMPLED_RECORDS, 1)
    rows = catalog.rows(f"select rid, key, source, feed, removed {live} and rid % ? = 0", (step,))
    if not rows:
        rows = catalog.rows(f"select rid, key, source, feed, removed {live}")
    cutter = Cutter(workspace, target)
    texts: dict[bytes, str] = {}
    for some in _slices([ChangedRecord(r["rid"], r["key"], r["source"], r["feed"], False) for r in rows], _RECORDS):
        texts |= cutter.texts(some)
    missing = _missing(catalog, target.fingerprint, texts)
    scale = total / len(rows) if rows else 0
    backend, rate, measured = _measure(target.model, list(missing.values())) if missing else ("", 0.0, 0)
    tables = sum(len(text) for text in texts.values()) + len(texts) * description.dimensions * 4
    size = tables + len(missing) * description.dimensions * 2
    return Estimate(
        model=description.name,
        records=total,
        records_looked_at=len(rows),
        chunks=round(len(texts) * scale),
        ready=round((len(texts) - len(missing)) * scale),
        backend=backend,
        chunks_per_s=round(rate, 1),
        measured_chunks=measured,
        minutes=round(len(missing) * scale / rate / 60, 1) if rate else 0.0,
        disk_mb=round(size * scale / 1e6, 1),
    )


def prepare(workspace: Workspace, target: Target) -> int:
    """Vectors of every chunk that the wanted model and chunking would give, but for what moves at this moment. What has
    a vector is left alone; gives how many were made.
    """
    home, catalog = workspace.home, workspace.catalog
    opened: list[Encoder] = []
    embedded, after, expected = 0, 0, 0
    while True:
        note_preparation(home, target.model, target.cut)
        purged = _purged(catalog)
        # Passages of what was applied later are not cut yet: those records are looked at again.
        seen = int(catalog.value("select applied from stages where stage = ?", (PASSAGES,)) or 0)
        made = sum(_look_through(workspace, target, after, opened, purged))
        embedded += made
        lost = _purged(catalog) != purged
        if lost:  # what was being encoded at that moment may be of the purged text
            with catalog.transaction() as connection:
                connection.execute(
                    "delete from embeddings where model = ? and hash not in (select hash from chunks)",
                    (target.fingerprint,),
                )
        held = int(catalog.value("select count(*) from embeddings where model = ?", (target.fingerprint,)))
        lost = lost or held < expected + made  # the purge's own sweep came later
        if not lost and made <= indexes.ENCODE_BATCH:
            return embedded
        after, expected = 0 if lost else seen, held


def switch(workspace: Workspace, target: Target) -> list[StageReport]:
    """Name the wanted model in the settings and publish a release with it.

    Raises:
        SettingsError: the settings moved while vectors were prepared for others.
        HomeTakenError: a writer holds the home; its successor makes the switch, since the settings ask for it.
    """
    settings = Settings.load(target.file)
    if target.sets_value:
        if settings.chunking != target.settings.chunking:
            raise SettingsError(
                f"{target.file}: `chunking` was changed while vectors were prepared; run `aps-rag reindex` again"
            )
        set_value(target.file, _PLACE, target.settings.models.embedding)
    with WriterLock(workspace.home, target.settings.limits.lock_timeout_s, "reindex"):
        settings = Settings.load(target.file)
        reports = pipeline.complete(Workspace(settings, workspace.home, workspace.catalog, workspace.progress))
    end_preparation(workspace.home)
    return reports


class Cutter:
    """The texts that records would have as chunks. Nothing of them is written."""

    def __init__(self, workspace: Workspace, target: Target) -> None:
        self._catalog, self._settings = workspace.catalog, target.settings
        self._chunker = open_chunker(target.settings.chunking, target.model)
        # Passages are read as they stand unless they would be cut otherwise too.
        self._cuts_anew = present_cut(workspace.catalog).passages != target.cut.passages
        self._languages = {feed.name: feed.ocr_language for feed in target.settings.feeds}
        self._names = lru_cache(maxsize=1)(partial(known_names, workspace.catalog))

    def texts(self, records: list[ChangedRecord]) -> dict[bytes, str]:
        """Distinct chunk texts of the records that are served, by hash."""
        rids = [record.rid for record in records if not record.removed]
        heads = {
            row["rid"]: self._chunker.header(row["key"], row["title"], from_iso(row["created_at"]))
            for row in self._catalog.rows(
                f"select rid, key, title, created_at from records where rid in ({marks(rids)}) and access <> '[]'", rids
            )
        }
        passages = self._cut(records) if self._cuts_anew else self._stored(rids)
        pieces = (
            piece
            for rid, kind, text in passages
            if rid in heads
            for piece in self._chunker.split(heads[rid], kind, text)
        )
        return {text_hash(piece): piece for piece in pieces}

    def _stored(self, rids: list[int]) -> Iterator[tuple[int, str, str]]:
        sql = f"select rid, kind, text from passages where rid in ({marks(rids)}) order by rid, ordinal"
        for row in self._catalog.rows(sql, rids):
            yield row["rid"], row["kind"], unpack(row["text"]).decode()

    def _cut(self, records: list[ChangedRecord]) -> Iterator[tuple[int, str, str]]:
        for record, body in bodies(self._catalog, records):
            language = self._languages.get(record.feed, "eng")
            shown = picture_reader(self._catalog, language, self._names, body.access)
            for passage in cut(body, self._settings.chunking.passage_words, shown):
                yield record.rid, passage.kind, passage.text


def _purged(catalog: Catalog) -> tuple[int, str]:
    """Differs after a purge."""
    row = catalog.rows("select count(*) as number, coalesce(max(at), '') as newest from purged")[0]
    return row["number"], row["newest"]


def _look_through(
    workspace: Workspace, target: Target, after: int, opened: list[Encoder], purged: tuple[int, str]
) -> Iterator[int]:
    """One pass over the records that moved after a changeset, up to the next purge; gives what each batch embedded."""
    catalog, cutter = workspace.catalog, Cutter(workspace, target)
    total = int(catalog.value("select count(*) from records where changeset > ?", (after,)))

    def slices() -> Iterator[list[tuple[bytes, str]]]:
        taken: set[bytes] = set()
        waiting: dict[bytes, str] = {}
        batches = changed_records(catalog, after, _RECORDS)
        for some in workspace.progress.track(batches, "preparing vectors", -(-total // _RECORDS)):
            texts = cutter.texts(some)
            waiting |= {
                found: text
                for found, text in _missing(catalog, target.fingerprint, texts).items()
                if found not in taken
            }
            taken.update(waiting)
            while len(waiting) >= indexes.ENCODE_BATCH:
                yield [waiting.popitem() for _ in range(indexes.ENCODE_BATCH)]
        if waiting:
            yield list(waiting.items())

    def encode(texts: list[str]) -> Vectors:
        if not opened:
            opened.append(target.model.encoder())
        return opened[0].encode_passages(texts)

    for kept in indexes.keep_vectors(catalog, target.fingerprint, encode, slices()):
        yield kept
        note_preparation(workspace.home, target.model, target.cut)
        if _purged(catalog) != purged:
            return


def _missing(catalog: Catalog, fingerprint: str, texts: dict[bytes, str]) -> dict[bytes, str]:
    """Those of the texts that have no vector by a model."""
    known: set[bytes] = set()
    for some in _slices(list(texts), _LONGEST_LOOKUP):
        sql = f"select hash from embeddings where model = ? and hash in ({marks(some)})"
        known.update(row["hash"] for row in catalog.rows(sql, (fingerprint, *some)))
    return {found: text for found, text in texts.items() if found not in known}


def _measure(model: ConfiguredModel, texts: list[str]) -> tuple[str, float, int]:
    """(backend, chunks per second, by how many chunks) of the encoder on texts of all lengths, each as often as it is.

    A few tell how many can be encoded in the time there is; as preparing does, these are encoded together.
    """
    encoder = model.encoder()
    encoder.encode_passages(texts[:1])  # the first call compiles
    ordered = sorted(texts, key=len)
    ends = time.perf_counter() + _MEASURED_S
    wanted = min(_MEASURED_FIRST, len(texts))
    while True:
        some = [ordered[(2 * place + 1) * len(ordered) // (2 * wanted)] for place in range(wanted)]
        start = time.perf_counter()
        encoder.encode_passages(some)
        now = time.perf_counter()
        rate = wanted / max(now - start, 1e-9)
        following = min(int(rate * (ends - now)), indexes.ENCODE_BATCH, len(texts))
        if following < 2 * wanted:
            return encoder.backend, rate, wanted
        wanted = following


def _slices(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _naming(settings: Settings, name: str) -> Models:
    return settings.models.model_copy(update={"embedding": name})


def _fingerprint(settings: Settings, home: Home) -> str:
    """Of the model in the settings; blank when it is not on this machine (any more)."""
    try:
        return configured_model(settings, home).description.fingerprint
    except ModelError:
        return ""
