"""Vectors of a model that is not in use yet: which one is being prepared, and which vectors the collector may drop."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from aps_rag_pipeline import clock
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.catalog import Catalog, marks
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.model import ConfiguredModel, configured_model
from aps_rag_pipeline.sync.names import CHUNKS, PASSAGES
from aps_rag_pipeline.sync.text import chunks_version, passages_version
from aps_rag_pipeline.sync.workspace import Workspace

#: A preparation that nobody has gone on with for so long is given up, and its vectors are collected.
_LAPSES_AFTER = timedelta(days=14)


class Cut(msgspec.Struct, frozen=True):
    """What decides which texts are embedded: versions of passages and chunks, the latter with the model in it."""

    passages: str
    chunks: str


class Preparation(msgspec.Struct, frozen=True):
    """Vectors that are being made beside those in use."""

    model: str
    fingerprint: str
    cut: Cut
    started_at: datetime
    worked_at: datetime


def cut_of(settings: Settings, model: ConfiguredModel) -> Cut:
    """What settings ask for."""
    return Cut(passages_version(settings.chunking), chunks_version(settings.chunking, model))


def present_cut(catalog: Catalog) -> Cut:
    """What the catalog holds; blank before the first sync."""
    found = {row["stage"]: row["version"] for row in catalog.rows("select stage, version from stages")}
    return Cut(found.get(PASSAGES, ""), found.get(CHUNKS, ""))


def with_present_model(workspace: Workspace) -> Workspace:
    """The workspace with the model and the chunking that its settings' file names by now. Asked for under the writer
    lock, it keeps a run that had read the file before a switch from making all of it undone.

    Raises:
        SettingsError: the file cannot be used any more.
    """
    settings, present = workspace.settings, workspace.settings.read_again()
    if (settings.models, settings.chunking) == (present.models, present.chunking):
        return workspace
    named = {"models": present.models, "chunking": present.chunking}
    return replace(workspace, settings=settings.model_copy(update=named))


def read_preparation(home: Home) -> Preparation | None:
    """The preparation that is under way, or was stopped and can be gone on with."""
    found = state.read(_path(home), Preparation)
    return found if found is not None and clock.now() - found.worked_at < _LAPSES_AFTER else None


def note_preparation(home: Home, model: ConfiguredModel, cut: Cut) -> None:
    """Before the first vector and after each batch. A model prepared before is forgotten: there is one at a time."""
    known, description = read_preparation(home), model.description
    started = known.started_at if known is not None and known.cut == cut else clock.now()
    state.write(_path(home), Preparation(description.name, description.fingerprint, cut, started, clock.now()))


def end_preparation(home: Home) -> None:
    _path(home).unlink(missing_ok=True)


def drop_vectors(workspace: Workspace, *, everything: bool = False) -> int:
    """Drop, within a transaction, the vectors that nobody needs, and give how many went: all those of models that
    neither the settings nor a kept release nor a preparation uses, and those of the model in use whose texts are no
    chunks any more. While another release is kept its model's vectors are, so that the way back is short.

    `everything` leaves only those of present chunks: a purged text may be among the others.
    """
    home, catalog = workspace.home, workspace.catalog
    present = configured_model(workspace.settings, home).description.fingerprint
    kept = {present}
    preparation = read_preparation(home)
    if preparation is not None and preparation.cut == present_cut(catalog):  # it has become what is in use
        end_preparation(home)
        preparation = None
    if not everything:
        kept |= {releases.read_manifest(home, number).model.fingerprint for number in releases.numbers(home)}
        kept |= {preparation.fingerprint} if preparation is not None else set()
    # Another chunking is prepared by the model in use: its texts are no chunks yet.
    spared = preparation is not None and preparation.fingerprint == present and not everything
    dropped = catalog.connection.execute(
        f"delete from embeddings where model not in ({marks(kept)}) or (model = ? and "
        "not exists (select 1 from chunks c where c.hash = embeddings.hash))",
        (*kept, "" if spared else present),
    )
    return dropped.rowcount


def _path(home: Home) -> Path:
    return home.state / "reindex.json"
