"""Dead letters: items that could not be read, remembered until they can be, are gone, or somebody forgets them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from aps_rag_pipeline import clock
from aps_rag_pipeline.sources.base import Failure
from aps_rag_pipeline.stores.catalog import Catalog, from_iso, iso
from aps_rag_pipeline.sync import state
from aps_rag_pipeline.sync.workspace import Workspace


class UnknownLetterError(LookupError):
    """No failure has this id."""


@dataclass(frozen=True)
class Letter:
    """A failure as people see it. `id` is short and stays with the item; `key` is the record that keeps its last good
    version, empty where there is none."""

    id: str
    feed: str
    unit: str
    item: str
    place: str
    reason: str
    remedy: str
    permanent: bool
    attempts: int
    first_at: str | None
    last_at: str | None
    retry_at: str | None
    key: str
    picture: bool = False


def letters(catalog: Catalog, feed: str | None = None) -> list[Letter]:
    """All failures, of items and of pictures, by feed and place."""
    items = catalog.rows(
        "select d.*, coalesce(r.key, '') as key from dead_letters d "
        "left join records r on r.feed = d.feed and r.id = d.record_id and r.removed = 0 where ? is null or d.feed = ?",
        (feed, feed),
    )
    pictures = catalog.rows(
        "select r.feed, min(r.key) as key, o.sha256, o.page, o.language, o.error, o.retry_at from ocr o "
        "join attachments a on a.sha256 = o.sha256 join records r on r.rid = a.rid "
        "where o.error is not null and r.removed = 0 and (? is null or r.feed = ?) "
        "group by r.feed, o.sha256, o.page, o.language",
        (feed, feed),
    )
    found = [
        Letter(
            _id(row["feed"], row["unit"], row["item"]), row["feed"], row["unit"], row["item"], row["place"],
            row["reason"], row["remedy"], bool(row["permanent"]), row["attempts"], row["first_at"], row["last_at"],
            row["retry_at"], row["key"],
        )
        for row in items
    ]  # fmt: skip
    found += [
        Letter(
            _id(row["feed"], row["sha256"], f"{row['page']}|{row['language']}"), row["feed"], row["sha256"],
            f"{row['page']}|{row['language']}", f"{row['key']} (picture {row['sha256'][:12]})", row["error"],
            "look at the picture; the record is served without its text", row["retry_at"] is None, 1, None, None,
            row["retry_at"], row["key"], True,
        )
        for row in pictures
    ]  # fmt: skip
    return sorted(found, key=lambda letter: (letter.feed, letter.place, letter.item))


def find(catalog: Catalog, ids: Iterable[str]) -> list[Letter]:
    """The failures of these ids; an unambiguous beginning of an id is enough.

    Raises:
        UnknownLetterError: an id fits none, or several.
    """
    everything = letters(catalog)
    found = []
    for wanted in ids:
        fitting = [letter for letter in everything if letter.id.startswith(wanted)]
        if len(fitting) != 1:
            many = "no failure has" if not fitting else f"{len(fitting)} failures have"
            raise UnknownLetterError(f"{many} the id {wanted!r}; `aps-rag failures` lists them")
        found.append(fitting[0])
    return found


def retry(workspace: Workspace, chosen: Iterable[Letter]) -> None:
    """Have the next sync read these items whatever their state. Needs the writer lock."""
    now = iso(clock.now())
    chosen = list(chosen)
    with workspace.catalog.transaction() as connection:
        for letter in chosen:
            if letter.picture:
                page, language = letter.item.split("|", 1)
                connection.execute(
                    "update ocr set retry_at = ? where sha256 = ? and page = ? and language = ?",
                    (now, letter.unit, page, language),
                )
            else:
                connection.execute(
                    "update dead_letters set retry_at = ? where feed = ? and unit = ? and item = ?",
                    (now, letter.feed, letter.unit, letter.item),
                )
    _tell_sensors(workspace, chosen)


def forget(workspace: Workspace, chosen: Iterable[Letter]) -> None:
    """Drop these failures from the list. What fails again is remembered anew. Needs the writer lock."""
    chosen = list(chosen)
    with workspace.catalog.transaction() as connection:
        for letter in chosen:
            if letter.picture:
                page, language = letter.item.split("|", 1)
                connection.execute(
                    "delete from ocr where sha256 = ? and page = ? and language = ?", (letter.unit, page, language)
                )
            else:
                connection.execute(
                    "delete from dead_letters where feed = ? and unit = ? and item = ?",
                    (letter.feed, letter.unit, letter.item),
                )
    _tell_sensors(workspace, chosen)


def note_failures(
    catalog: Catalog, feed: str, failures: list[Failure], complete: set[str], cursor: object, pause: timedelta
) -> None:
    """Remember what failed in a stream and drop what it mended, inside the stream's transaction."""
    connection = catalog.connection
    now = iso(clock.now())
    reported = {(failure.unit, failure.item) for failure in failures}
    read = complete | {failure.unit for failure in failures if failure.unit == failure.item}
    for row in catalog.rows("select unit, item from dead_letters where feed = ?", (feed,)):
        listed = isinstance(cursor, dict) and row["unit"] in cursor.get("units", {})
        # A part of a feed that could not be listed is in no cursor; when it is not told of again, it can be.
        mended = row["unit"] in read or not listed
        if mended and (row["unit"], row["item"]) not in reported:
            connection.execute("delete from dead_letters where feed = ? and unit = ? and item = ?", (feed, *row))
    for failure in failures:
        retry_at = None if failure.permanent else iso(clock.now() + pause)
        connection.execute(
            "insert into dead_letters values (?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?) on conflict do update set "
            "place = excluded.place, reason = excluded.reason, remedy = excluded.remedy, "
            "permanent = excluded.permanent, attempts = attempts + 1, last_at = excluded.last_at, "
            "retry_at = excluded.retry_at, record_id = excluded.record_id",
            (
                feed, failure.unit, failure.item, failure.place, failure.reason, failure.remedy, failure.permanent,
                failure.record_id, now, now, retry_at,
            ),
        )  # fmt: skip


def next_picture(catalog: Catalog) -> datetime | None:
    """When a picture that could not be read is due again; None when none is."""
    return from_iso(
        catalog.value(
            "select min(o.retry_at) from ocr o join attachments a on a.sha256 = o.sha256 "
            "join records r on r.rid = a.rid where r.removed = 0"
        )
    )


def _tell_sensors(workspace: Workspace, chosen: list[Letter]) -> None:
    """Sensors look at small files, never at the catalog."""
    catalog, home = workspace.catalog, workspace.home
    for name in {letter.feed for letter in chosen if not letter.picture}:
        sources = {feed.name: feed.source for feed in workspace.settings.feeds}
        if name in sources:
            found = state.read_feed(home, sources[name], name)
            found.failures = int(catalog.value("select count(*) from dead_letters where feed = ?", (name,)))
            found.retry_at = from_iso(catalog.value("select min(retry_at) from dead_letters where feed = ?", (name,)))
            state.write_feed(home, found)
    if any(letter.picture for letter in chosen):
        note_next_picture(workspace)


def note_next_picture(workspace: Workspace) -> None:
    pipeline = state.read_pipeline(workspace.home)
    pipeline.pictures_retry_at = next_picture(workspace.catalog)
    state.write_pipeline(workspace.home, pipeline)


def _id(*parts: str) -> str:
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "backslashreplace"), digest_size=4).hexdigest()
