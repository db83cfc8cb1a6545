"""An open release with what is loaded of it on first use."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

from aps_rag_pipeline.settings import Models
from aps_rag_pipeline.stores.home import Home
from aps_rag_pipeline.stores.releases import Release, open_release
from aps_rag_pipeline.stores.tables import PASSAGES, RECORDS
from query import lookup
from query.filters import Filters
from query.held import Shelved
from query.meaning import Meaning
from query.places import Place
from query.results import Searched
from query.retrieval import SparseIndex

if TYPE_CHECKING:
    from aps_rag_pipeline.models import Encoder

T = TypeVar("T")

log = logging.getLogger(__name__)

_THREADS = 4
#: Whoever asks a second question of a release will ask more.
_HOLD_FROM = 2


class RetiredError(Exception):
    """The snapshot was retired, so that no further call can use it."""


class Snapshot:
    """An open release with what is loaded of it on first use. Closed when it is retired and no call uses it.

    A model that is still being loaded then is waited for by nobody: the load ends in its own thread and is dropped.

    Args:
        before: the snapshot that this one follows; the model is taken over where it is the same.
    """

    def __init__(self, home: Home, before: Snapshot | None = None) -> None:
        self.home = home
        self.release: Release = open_release(home)
        self._users = 0
        self._retired = False
        self._closed = False
        self._lock = threading.Lock()
        self._questions = 0
        self._holding = threading.Lock()
        self._encoder: Future[Encoder] | None = None
        if before is not None and before.release.manifest.model.fingerprint == self.release.manifest.model.fingerprint:
            self._encoder = _taken_over(before._encoder)
        self._searched = lru_cache(maxsize=256)(lambda filters: lookup.searched(self.release, filters))
        self._places = lru_cache(maxsize=256)(lambda visible: lookup.places_in(self.release, visible))
        self._beginnings = lru_cache(maxsize=256)(
            lambda visible, kind: lookup.beginnings_in(self.release, visible, kind)
        )

    @cached_property
    def index(self) -> SparseIndex:
        return SparseIndex(self.release.tantivy)

    @cached_property
    def meaning(self) -> Meaning:
        return Meaning(self.release.chunks())

    @cached_property
    def passages(self) -> Shelved:
        return Shelved(self.release.table(PASSAGES), "passage_id")

    @cached_property
    def records(self) -> Shelved:
        return Shelved(self.release.table(RECORDS), "key")

    def count_question(self) -> None:
        """From the second question on, what makes further ones quick is read into memory, in a thread of its own."""
        with self._lock:
            self._questions += 1
            if self._questions != _HOLD_FROM:
                return
        threading.Thread(target=self._hold_quietly, name="hold", daemon=True).start()

    def hold(self) -> None:
        """Read into memory what makes questions quick. Until it is there they look it up."""
        with self._holding:
            for part in (self.records, self.passages, self.meaning):
                part.hold()

    def _hold_quietly(self) -> None:
        try:
            with self.used():
                self.hold()
        except RetiredError:
            return
        except Exception as error:  # whoever asks meets it where it stands, or can do without
            log.warning("%s: questions look up what could not be held in memory: %s", self.release.folder, error)

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """Threads in which a question's channels run beside each other: the stores work outside the interpreter."""
        return ThreadPoolExecutor(_THREADS, thread_name_prefix="channel")

    def searched(self, filters: Filters) -> Searched:
        """How much a search with these filters looks through. A release does not change, so it is counted once."""
        return self._searched(filters)

    def find_place(self, text: str, visible: Filters) -> Place | None:
        """The place that a question names; what places there are, and how names begin in one, is learned once."""
        return lookup.find_place(visible, text, self._places, self._beginnings)

    @cached_property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.release.manifest.time_zone)

    def load_encoder(self) -> Future[Encoder]:
        """Start loading the release's own model, whatever the settings name by now; beside the stores, to save time."""
        with self._lock:
            if self._encoder is None or _has_failed(self._encoder):
                self._encoder = Future()
                threading.Thread(target=self._load, args=(self._encoder,), daemon=True).start()
            return self._encoder

    def once_loaded(self, work: Callable[[], T]) -> Future[T]:
        """Work of the pool that begins when the model is there, so that none of its threads waits for a model."""
        done: Future[T] = Future()
        pool = self.pool

        def begin(_: object) -> None:
            try:
                started = pool.submit(work)
            except RuntimeError as error:  # the release was closed meanwhile
                done.set_exception(error)
                return
            started.add_done_callback(lambda ended: _handed_on(ended, done))

        self.load_encoder().add_done_callback(begin)
        return done

    def _load(self, future: Future[Encoder]) -> None:
        try:
            from aps_rag_pipeline.models import open_encoder

            model = self.release.manifest.model
            future.set_result(
                open_encoder(Models(embedding=model.name), self.home.models, fingerprint=model.fingerprint)
            )
        except BaseException as error:  # handed to whoever waits for the model
            future.set_exception(error)

    @contextlib.contextmanager
    def used(self) -> Iterator[Snapshot]:
        """Keep it open for a call.

        Raises:
            RetiredError: it is retired, and may be closed already.
        """
        with self._lock:
            if self._retired:
                raise RetiredError
            self._users += 1
        try:
            yield self
        finally:
            with self._lock:
                self._users -= 1
            self._close_if_done()

    def retire(self) -> None:
        with self._lock:
            self._retired = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        with self._lock:
            if not self._retired or self._users or self._closed:
                return
            self._closed = True
        if "pool" in self.__dict__:
            self.pool.shutdown()
        if "index" in self.__dict__:
            self.index.close()
        for part in ("meaning", "passages", "records", "index"):  # what they hold, in memory or open, goes at once
            self.__dict__.pop(part, None)
        self.release.close()


def _taken_over(load: Future[Encoder] | None) -> Future[Encoder] | None:
    """A load that has ended without the calls that waited for it: they know the release that they were asked of."""
    if load is None or not load.done() or load.exception() is not None:
        return load
    ended: Future[Encoder] = Future()
    ended.set_result(load.result())
    return ended


def _has_failed(load: Future[Encoder]) -> bool:
    """A model that was not there may be there now."""
    return load.done() and load.exception() is not None


def _handed_on(ended: Future[T], to: Future[T]) -> None:
    error = ended.exception()
    if error is not None:
        to.set_exception(error)
    else:
        to.set_result(ended.result())
