"""For random histories of adds, edits, deletions, moves, relabellings and damage: once the damage is mended, every
index holds exactly what the source holds, and another sync has nothing to do."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from aps_rag_pipeline.stores.releases import open_release
from aps_rag_pipeline.sync import pipeline
from tests.small_facility import Facility

WORDS = ("klystron", "vacuum", "trip", "beam", "K12", "pump", "orbit", "reset", "S35:KICKER:HVPS:VoltageM")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)
DOCUMENTS = st.sampled_from(["shift-a", "shift-b", "shift-c"])
IDS = st.integers(1, 12)


class History(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.facility = Facility(Path(self._folder.name))
        self.facility.log = {"shift-a": {1: "first entry"}}
        self.facility.requests = {"20000": {"title": "Pump", "description": "replace it"}}
        self.facility.write()

    def teardown(self) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    @rule(document=DOCUMENTS, log_id=IDS, text=TEXTS)
    def write_entry(self, document: str, log_id: int, text: str) -> None:
        for entries in self.facility.log.values():  # an id lives in one document: this also moves it
            entries.pop(log_id, None)
        self.facility.log.setdefault(document, {})[log_id] = text

    @rule(log_id=IDS)
    def delete_entry(self, log_id: int) -> None:
        if sum(len(entries) for entries in self.facility.log.values()) > 1:
            for entries in self.facility.log.values():
                entries.pop(log_id, None)

    @rule(text=TEXTS)
    def edit_request(self, text: str) -> None:
        self.facility.requests["20000"]["description"] = text

    @rule(label=st.sampled_from(["public", "ops"]))
    def relabel(self, label: str) -> None:
        feeds = self.facility.config["feeds"]
        feeds[0] = {**feeds[0], "access": [label]}
        self.facility.extra["feeds"] = feeds

    @precondition(lambda self: any(self.facility.log.values()))
    @rule(data=st.data())
    def damage_a_file_and_sync(self, data: st.DataObject) -> None:
        self.facility.write()
        document = data.draw(st.sampled_from(sorted(self.facility.log)))
        path = self.facility.root / "log" / f"{document}.json"
        whole = path.read_bytes()
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        self.facility.sync()
        path.write_bytes(whole)

    @rule()
    def sync(self) -> None:
        self.facility.write().sync()

    @rule()
    def die_after_the_changeset(self) -> None:
        from aps_rag_pipeline.sync.apply import apply_spool
        from aps_rag_pipeline.sync.fetch import fetch

        self.facility.write()
        with self.facility.workspace() as workspace:
            fetch(workspace, workspace.settings.feeds)
            apply_spool(workspace)

    def check(self) -> None:
        self.facility.write()
        with self.facility.workspace() as workspace:
            pipeline.sync(workspace)
            _, applied, reports = pipeline.sync(workspace)
        assert applied.moved == 0
        assert not any(report.counts["changed"] for report in reports)
        wanted = {f"BELY:{i}": text for entries in self.facility.log.values() for i, text in entries.items()}
        wanted["WRQ:20000"] = self.facility.requests["20000"]["description"]
        assert set(self.facility.live()) == set(wanted)
        for name, keys in self.facility.everywhere().items():
            assert keys == set(wanted), name
        label = self.facility.config["feeds"][0].get("access", ["public"])
        with open_release(self.facility.home) as release:
            for row in release.table("passages").to_arrow().to_pylist():
                assert wanted[row["key"]] in row["text"]
                assert row["access"] == (label if row["source"] == "bely" else ["public"])


class CheckedHistory(History):
    def teardown(self) -> None:
        try:
            if hasattr(self, "facility"):
                self.check()
        finally:
            super().teardown()


CheckedHistory.TestCase.settings = settings(
    max_examples=6, stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck)
)
test_random_histories = CheckedHistory.TestCase
