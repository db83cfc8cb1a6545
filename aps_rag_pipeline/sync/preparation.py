"""Vectors of a model that is not in use yet: which one is being prepared, and which vectors the collector may drop."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from aps_rag_pipeline import clock
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.catalog import Catalog
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.model import ConfiguredModel, configured_model
from aps_rag_pipeline.sync.names import CHUNKS, PASSAGES, SWEPT
from aps_rag_pipeline.sync.text import chunks_version, passages_version
from aps_rag_pipeline.sync.workspace import Workspace

#: A preparation that nobody has gone on with for so long is given up, and its vectors are collected.
_LAPSES_AFTER = timedelta(days=14)

#: The vectors of the model in use are looked through when more than one record in so many has moved since, and in a
#: small catalog always.
_MOVED_ONE_IN, _SMALL = 16, 5000
_SWEPT_VERSION = "1"


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
    chunks any more; these once enough records have moved, since every vector is looked at. While another release is
    kept its model's vectors are, so that the way back is short.

    `everything` leaves only those of present chunks, at once: a purged text may be among the others.
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
    execute = catalog.connection.execute
    dropped = sum(
        execute("delete from embeddings where model = ?", (model,)).rowcount for model in _models(catalog) - kept
    )
    if not spared and (everything or _many_moved(catalog)):
        dropped += execute(
            "delete from embeddings where model = ? and not exists (select 1 from chunks c where c.hash = "
            "embeddings.hash)",
            (present,),
        ).rowcount
        catalog.set_applied(SWEPT, _SWEPT_VERSION, catalog.changeset())
    return dropped


def _models(catalog: Catalog) -> set[str]:
    """Fingerprints of the models that there are vectors of, a look into the index for each."""
    rows = catalog.rows(
        "with recursive known (model) as (select min(model) from embeddings union all select "
        "(select min(e.model) from embeddings e where e.model > known.model) from known where known.model is not null) "
        "select model from known where model is not null"
    )
    return {row["model"] for row in rows}


def _many_moved(catalog: Catalog) -> bool:
    """Whether so many records have moved since vectors were last looked through that it is worth it."""
    records = int(catalog.value("select coalesce(max(rid), 0) from records"))
    since = catalog.applied(SWEPT, _SWEPT_VERSION)
    moved = int(catalog.value("select count(*) from records where changeset > ?", (since,)))
    return records < _SMALL or moved * _MOVED_ONE_IN > records


def _path(home: Home) -> Path:
    return home.state / "reindex.json"
