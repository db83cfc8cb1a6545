"""For random histories of additions, edits, deletions, relabellings and faults: nothing is ever invented, once the
faults stop the catalog equals the source, and no body is fetched twice without need."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.live_feed import CASES, live_feed, visible

NUMBERS = st.integers(1, 8)
WORDS = st.sampled_from(["klystron", "vacuum", "trip", "kicker", "orbit", "pump"])
FAULTS = st.sampled_from(["status", "reset", "cut", "torn", "html", "empty"])
#: Histories of each live form, in shards that can run side by side; `make torture` asks for ten thousand in all.
HISTORIES = -(-int(os.environ.get("APS_RAG_HISTORIES", "0")) // max(len(CASES), 1)) or 4
SHARD = 50


class LiveHistory(RuleBasedStateMachine):
    name = ""

    @initialize(word=WORDS)
    def start(self, word: str) -> None:
        self.stack = ExitStack()
        self.feed = self.stack.enter_context(live_feed(self.name))
        self.edits = 0
        self.live: set[int] = set()
        self.moved: set[int] = set()
        self.settled = False
        self.ever: dict[str, set[str]] = {}
        for number in (1, 2):
            self.put(number, word)

    @rule(number=NUMBERS, word=WORDS)
    def put(self, number: int, word: str) -> None:
        self.edits += 1
        self.feed.case.put(number, f"{word} edit {self.edits} of item {number} end")
        self.live.add(number)
        self.moved.add(number)
        for record_id, text in self.feed.case.wanted().items():
            self.ever.setdefault(record_id, set()).add(text)

    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        if number in self.live and len(self.live) > 1:
            self.feed.case.delete(number)
            self.live.discard(number)
            self.moved.add(number)

    @rule(label=st.sampled_from(["public", "ops"]))
    def relabel(self, label: str) -> None:
        if self.feed.extra.get("access") != [label]:
            self.feed.extra["access"] = [label]
            self.settled = False  # every item is read again

    @rule()
    def sync(self) -> None:
        synced = self.feed.sync()
        assert synced.report.error == ""
        assert synced.report.failures == []
        assert self.feed.differences() == []
        if self.settled and self.feed.case.item:
            assert len(self.feed.bodies_asked()) <= len(self.moved) * getattr(self.feed.case, "per_item", 1)
        self.moved.clear()
        self.settled = True

    @rule(kind=FAULTS, times=st.integers(1, 9), items=st.booleans(), again=st.booleans())
    def sync_under_faults(self, kind: str, times: int, items: bool, again: bool) -> None:
        server, case = self.feed.server, self.feed.case
        if server is None:
            return
        server.fail(kind, times=times, path=case.item if items and case.item else case.listing)
        self.feed.sync(again=again)
        server.faults.clear()
        self.settled = False
        for record_id, record in self.feed.records().items():
            assert record_id in self.ever, f"{record_id} was invented"
            # A thread may be served while a reply that was never seen cannot be read.
            said = {*self.ever[record_id], *getattr(case, "beside", ())}
            assert any(text in visible(record) for text in said), visible(record)

    def teardown(self) -> None:
        if not hasattr(self, "stack"):
            return
        with self.stack:
            if self.feed.server:
                self.feed.server.faults.clear()
            self.settled = False
            self.sync()
            synced = self.feed.sync()
            assert (synced.moved, synced.report.spooled) == (0, False)
            assert self.feed.bodies_asked() == []
            assert self.feed.failures() == 0
            assert self.feed.access() == {f'["{self.feed.extra.get("access", ["public"])[0]}"]'}


def machine(name: str) -> Any:
    return type(f"History_{name}", (LiveHistory,), {"name": name})


@pytest.mark.parametrize("shard", range(-(-HISTORIES // SHARD)))
@pytest.mark.parametrize("name", CASES)
def test_random_histories_of_a_live_feed(name: str, shard: int) -> None:
    budget = settings(
        max_examples=min(HISTORIES, SHARD),
        database=None,
        stateful_step_count=8,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine(name), settings=budget)
