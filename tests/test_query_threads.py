"""A corpus that threads share: calls beside a refresh, after the end, and while the model is still loading."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from aps_rag_pipeline import models
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.home import Home
from query import Corpus
from query.corpus import CorpusClosedError
from query.snapshot import Snapshot
from tests.released import Written, write_release

T = TypeVar("T")
#: More calls than a snapshot has threads.
MANY = 6
#: Ends a test that would wait for ever.
LONG_S = 30

PUMPS = [Written("bely", str(n), f"Pump {n}", (f"Pump {n} tripped at the vacuum gate.",)) for n in range(1, 6)]

CALLS: list[Callable[[Corpus], object]] = [
    lambda corpus: corpus.search("pump"),
    lambda corpus: corpus.search("pump", mode="sparse"),
    lambda corpus: corpus.ask("which pump tripped?"),
    lambda corpus: corpus.record("BELY:1"),
    lambda corpus: corpus.status(),
]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return write_release(tmp_path, PUMPS)


def just_before_use(monkeypatch: pytest.MonkeyPatch, happen: Callable[[], object]) -> None:
    """Let something happen in another thread once, between a call's look for the snapshot and its use."""
    used, happened = Snapshot.used, threading.Event()

    def late(self: Snapshot) -> AbstractContextManager[Snapshot]:
        if not happened.is_set():
            happened.set()
            other = threading.Thread(target=happen)
            other.start()
            other.join()
        return used(self)

    monkeypatch.setattr(Snapshot, "used", late)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_beside_a_refresh_is_served_by_the_next_release(
    home: Home, monkeypatch: pytest.MonkeyPatch, call: Callable[[Corpus], object]
) -> None:
    with Corpus.open(home, None) as corpus:
        call(corpus)
        write_release(home.root, PUMPS, number=2)
        just_before_use(monkeypatch, corpus.refresh)
        call(corpus)
        assert corpus.release == 2
        assert releases.leased(releases.folder_of(home, 2))
    assert not releases.leased(releases.folder_of(home, 2))
    assert not releases.leased(releases.folder_of(home, 1))


def test_a_call_that_began_keeps_its_release_through_a_refresh(home: Home) -> None:
    with Corpus.open(home, None) as corpus:
        with corpus._snapshot.used() as begun:
            write_release(home.root, PUMPS, number=2)
            assert corpus.refresh() == 2
            assert releases.leased(releases.folder_of(home, 1))
            assert begun.release.manifest.number == 1
        assert not releases.leased(releases.folder_of(home, 1))


@pytest.mark.parametrize("call", [*CALLS, Corpus.refresh])
def test_a_closed_corpus_says_so(home: Home, call: Callable[[Corpus], object]) -> None:
    corpus = Corpus.open(home, None)
    corpus.close()
    corpus.close()
    with pytest.raises(CorpusClosedError, match="the corpus is closed"):
        call(corpus)
    assert not releases.leased(releases.folder_of(home, 1))


def test_a_corpus_that_is_closed_while_it_is_refreshed_stays_closed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus.open(home, None)
    closing = threading.Thread(target=corpus.close)
    made = Snapshot.__init__

    def slow(self: Snapshot, *arguments: object) -> None:
        closing.start()
        made(self, *arguments)

    write_release(home.root, PUMPS, number=2)
    monkeypatch.setattr(Snapshot, "__init__", slow)
    assert corpus.refresh() == 2
    closing.join()
    assert not releases.leased(releases.folder_of(home, 2))
    assert not releases.leased(releases.folder_of(home, 1))
    with pytest.raises(CorpusClosedError):
        corpus.status()


def test_what_answers_share_cannot_be_changed(home: Home) -> None:
    with Corpus.open(home, None) as corpus:
        first, second = corpus.ask("which pump tripped?").searched, corpus.ask("what of the vacuum gate?").searched
    assert first is second  # counted once
    assert json.loads(json.dumps(first.to_dict()))["sources"] == ["bely"]
    assert hash(first)  # frozen all through: a list in it has no hash


def test_a_release_is_given_back_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []
    close = releases.Release.close

    def counted(self: releases.Release) -> None:
        given_back.append(self.manifest.number)
        close(self)

    monkeypatch.setattr(releases.Release, "close", counted)
    with Corpus.open(home, None) as corpus:
        corpus.search("pump")
        corpus.close()
    assert given_back == [1]


class Loading:
    """A model that is being loaded until `end`."""

    def __init__(self) -> None:
        self.begun, self.ended, self.dropped = threading.Event(), threading.Event(), threading.Event()

    def open(self, *arguments: Any, **named: Any) -> models.Encoder:
        self.begun.set()
        assert self.ended.wait(2 * LONG_S)
        self.dropped.set()
        return OPEN(*arguments, **named)


OPEN = models.open_encoder


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loading]:
    made = Loading()
    monkeypatch.setattr(models, "open_encoder", made.open)
    yield made
    made.ended.set()


def begun(work: Callable[[], T]) -> Future[T]:
    """Work in a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def keys(corpus: Corpus, **given: Any) -> list[str]:
    return [hit.key for hit in corpus.search("pump", **given).hits]


def test_words_and_blanks_are_answered_while_the_model_is_loading(home: Home, loading: Loading) -> None:
    corpus = Corpus.open(home, None)
    waiting = [begun(lambda: keys(corpus)) for _ in range(MANY)]
    assert loading.begun.wait(LONG_S)
    assert begun(lambda: keys(corpus, mode="sparse")).result(LONG_S)
    assert begun(lambda: corpus.search(" ").hits).result(LONG_S) == []
    assert not begun(lambda: corpus.ask("")).result(LONG_S).answered
    begun(corpus.close).result(LONG_S)
    assert not any(call.done() for call in waiting)
    assert releases.leased(releases.folder_of(home, 1))
    loading.ended.set()
    found = [call.result(LONG_S) for call in waiting]
    assert all(len(hits) == len(PUMPS) for hits in found)
    assert not releases.leased(releases.folder_of(home, 1))


def test_words_and_blanks_load_no_model(home: Home, loading: Loading) -> None:
    with Corpus.open(home, None) as corpus:
        assert keys(corpus, mode="sparse")
        assert corpus.search("", variants=["pump"]).hits == []
        assert not corpus.ask("  ").answered
    assert not loading.begun.is_set()


def test_closing_leaves_a_model_that_is_loading_behind(
    home: Home, loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object) -> None:
        raise OSError("the disk went away")

    corpus = Corpus.open(home, None)
    monkeypatch.setattr("query.question.understand", stumble)
    with pytest.raises(OSError, match="went away"):
        corpus.search("pump")
    assert loading.begun.wait(LONG_S)
    begun(corpus.close).result(LONG_S)
    assert not releases.leased(releases.folder_of(home, 1))
    loading.ended.set()
    assert loading.dropped.wait(LONG_S)


def test_a_model_that_cannot_be_loaded_fails_the_calls_that_need_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise models.ModelError("no such model on this machine")

    monkeypatch.setattr(models, "open_encoder", missing)
    with Corpus.open(home, None) as corpus:
        with pytest.raises(models.ModelError, match="no such model"):
            corpus.search("pump")
        assert keys(corpus, mode="sparse")
