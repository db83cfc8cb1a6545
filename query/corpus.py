"""The door to a facility's knowledge: search it, ask it, open a record of it, as a reader of certain groups."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Self
from zoneinfo import ZoneInfo

from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.home import Home
from query import lookup, retrieval
from query.filters import Filters, known_sources, reader
from query.found import key_of
from query.question import Question, Request
from query.results import Answer, CorpusStatus, Mode, RecordView, SearchResult
from query.snapshot import RetiredError, Snapshot
from query.times import Bound, ShiftLike, parse_bound


class CorpusClosedError(RuntimeError):
    """Something was asked of a corpus after it was closed."""


class Corpus:
    """A reader's view of the newest release at the time of opening, or of the last :meth:`refresh`.

    Safe to share by threads. Use it as a context manager, or close it; a call that begins later raises
    :class:`CorpusClosedError`.
    """

    def __init__(self, home: Home, filters: Filters, shifts: Sequence[ShiftLike], zone: ZoneInfo | None) -> None:
        self._home = home
        self._filters = filters
        self._shifts = tuple(shifts)
        self._zone = zone
        self._snapshot = Snapshot(home)
        self._changing = threading.Lock()

    @classmethod
    def open(
        cls,
        home: Path | str | Home,
        groups: Collection[str] | None,
        *,
        shifts: Sequence[ShiftLike] = (),
        zone: ZoneInfo | None = None,
    ) -> Self:
        """Open the newest release of a home.

        Args:
            groups: the reader's groups, who sees records labelled `public` or with one of these; None is the owner of
                the home, who sees every labelled record.
            shifts: the facility's shifts (`settings.shifts`), so that "owl shift" means hours of a day.
            zone: zone of dates in questions; the facility's when left out.

        Raises:
            NoReleaseError: nothing has been published there yet.
        """
        made = home if isinstance(home, Home) else Home(Path(home))
        return cls(made, Filters(groups=reader(groups)), shifts, zone)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the release go; the collector may take it once it is old and the calls under way have ended.

        Waits neither for those calls nor for a model that is being loaded: what is loaded for nobody is dropped.
        """
        with self._changing:
            self._snapshot.retire()

    def refresh(self) -> int:
        """Serve the newest release from now on; gives its number. Calls under way end on the one they began with."""
        with self._changing:
            with self._used() as old:
                newest = releases.latest(self._home)
                served = old.release.manifest
                if newest is not None and (newest.number, newest.token) == (served.number, served.token):
                    return served.number
                self._snapshot = Snapshot(self._home, old)
            old.retire()
            return self.release

    @property
    def release(self) -> int:
        """Number of the open release."""
        return self._snapshot.release.manifest.number

    def warm(self) -> None:
        """Load the model, and read into memory what makes questions quick: about 0.8 kB a chunk where vectors have 384
        dimensions, twice that where there are few. Without it the first two questions do that beside their own work."""
        with self._used() as snapshot:
            model = snapshot.load_encoder()
            snapshot.hold()
            model.result()

    def search(
        self,
        text: str,
        k: int = 10,
        sources: Collection[str] | None = None,
        feeds: Collection[str] | None = None,
        since: Bound = None,
        until: Bound = None,
        mode: Mode = "hybrid",
        profile: str | None = None,
        now: datetime | None = None,
        variants: Sequence[str] = (),
    ) -> SearchResult:
        """The `k` records that fit best, each with its best passage.

        Args:
            sources: keys of the kinds of source to search; all when left out.
            feeds: names of the feeds to search.
            since: only records created at or after this time; a naive one is in the facility's zone.
            until: only records created before this time; a date counts to its end.
            mode: `hybrid`, or one channel alone.
            profile: fixed fusion weights instead of those by intent (`fusion.PROFILES`).
            now: what "yesterday" is meant against; the present when left out.
            variants: other wordings of the same question, which the channels of words and of meaning search too.
                Identifiers, times and the place are read from `text` alone.

        Raises:
            ValueError: an unknown source, mode or profile, or a bound that is no time.
            TypeError: `variants` is one text.
        """
        request = self._request(text, sources, feeds, since, until, mode, profile, now, variants)
        with self._used() as snapshot:
            snapshot.count_question()
            return Question(snapshot, request).search(max(k, 0))

    def ask(
        self,
        text: str,
        sources: Collection[str] | None = None,
        feeds: Collection[str] | None = None,
        since: Bound = None,
        until: Bound = None,
        mode: Mode = "hybrid",
        profile: str | None = None,
        now: datetime | None = None,
        variants: Sequence[str] = (),
    ) -> Answer:
        """Sentences of the corpus that answer a question, each with its citation keys; or that there is no answer, why,
        and the nearest records. Arguments as for :meth:`search`."""
        request = self._request(text, sources, feeds, since, until, mode, profile, now, variants)
        with self._used() as snapshot:
            snapshot.count_question()
            return Question(snapshot, request).answer()

    def record(self, key: str) -> RecordView:
        """A whole record by citation key (with or without its feed, in any letter case), or by id where that is unique.
        A key that no record has any more finds the record that had it before it was renamed or moved.

        Raises:
            RecordNotFoundError: there is none that the reader may see.
            AmbiguousKeyError: several are called so.
        """
        with self._used() as snapshot:
            return lookup.find_record(
                snapshot.release,
                self._filters,
                key,
                lambda name: list(
                    dict.fromkeys(
                        key_of(hit.passage_id)
                        for hit in snapshot.index.exact("names", [name], "", self._filters, retrieval.DEPTH)
                    )
                ),
            )

    def status(self) -> CorpusStatus:
        """What the open release holds for this reader."""
        with self._used() as snapshot:
            return lookup.status_of(snapshot.release, self._filters)

    @contextlib.contextmanager
    def _used(self) -> Iterator[Snapshot]:
        """The snapshot that serves a call, open until the call ends."""
        with contextlib.ExitStack() as call:
            yield self._entered(call)

    def _entered(self, call: contextlib.ExitStack) -> Snapshot:
        while True:
            snapshot = self._snapshot
            try:
                return call.enter_context(snapshot.used())
            except RetiredError:
                if snapshot is self._snapshot:  # no other has followed it
                    raise CorpusClosedError(f"{self._home.root}: the corpus is closed; open it again") from None

    def _request(
        self,
        text: str,
        sources: Collection[str] | None,
        feeds: Collection[str] | None,
        since: Bound,
        until: Bound,
        mode: Mode,
        profile: str | None,
        now: datetime | None,
        variants: Sequence[str],
    ) -> Request:
        if isinstance(variants, str):
            raise TypeError("variants must be a sequence of texts, not one text")
        zone = self._zone or self._snapshot.zone
        visible = self._filters
        wanted = replace(
            visible,
            sources=known_sources(sources),
            feeds=(feeds,) if isinstance(feeds, str) else tuple(feeds or ()),
            since=parse_bound(since, zone),
            until=parse_bound(until, zone, end=True),
        )
        return Request(text, visible, wanted, zone, self._shifts, mode, profile, now, tuple(variants))
