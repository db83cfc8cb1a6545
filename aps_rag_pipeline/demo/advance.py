"""The next day at the demo facility: records come, are edited, get other labels, and go, each change written down."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from aps_rag_pipeline.demo import sizes
from aps_rag_pipeline.demo.amending import (
    BelyEditor,
    ChatEditor,
    DocumentEditor,
    DowntimeEditor,
    PageEditor,
    RequestEditor,
    ScriptEditor,
    SignalEditor,
)
from aps_rag_pipeline.demo.churn import CHAT_CHANNEL, DAILY, NOTES, SCRIPTS, Maker, quiet_devices
from aps_rag_pipeline.demo.extras import tag
from aps_rag_pipeline.demo.facility import END_DAY, SHIFT_MINUTES, Facility, Shift
from aps_rag_pipeline.demo.items import TOTAL_MINUTES, LogDocument
from aps_rag_pipeline.demo.library import Library
from aps_rag_pipeline.demo.phrases import Bank
from aps_rag_pipeline.demo.routine import FIRST_REQUEST
from aps_rag_pipeline.demo.truth import (
    Added,
    Churn,
    DayReport,
    Deleted,
    Edited,
    Relabelled,
    Truth,
    load_truth,
    save_truth,
)
from aps_rag_pipeline.demo.writers import bely, downtime, epics, icms, teams, wiki, work_requests

LABELS = (("public",), ("ops",), ("safety",), ("management",))
#: Numbers of what `advance` adds start here, above those of the records that `write` makes.
_DOCUMENTS, _STAND = 4_000, 100


def advance(out: Path) -> DayReport:
    """Apply the next day's changes to the files of the demo in `out` and note them in its truth.

    The n-th call changes the same files in the same way whenever and wherever it is made.

    Raises:
        FileNotFoundError: no demo lies there.
    """
    truth = load_truth(out)
    day = _Day(out, truth)
    report = day.run()
    save_truth(truth, out)
    return report


_Labeller = BelyEditor | RequestEditor | DowntimeEditor | PageEditor
_Editor = _Labeller | ChatEditor | ScriptEditor | SignalEditor


class _Day:
    def __init__(self, out: Path, truth: Truth) -> None:
        self.truth, self.number = truth, len(truth.days) + 1
        facility, bank = Facility(truth.seed), Bank(truth.held_out)
        self.rng = facility.rng("day", self.number, bank.side)
        told = {incident.device for incident in truth.incidents}
        self.maker = Maker(facility, bank, self.rng, quiet_devices(facility, told))
        self.midnight = TOTAL_MINUTES + (self.number - 1) * 1440
        self.minute = self.midnight + 9 * 60
        self.first = sizes.counts(truth.records)
        feeds = out / "feeds"
        self.log = BelyEditor(feeds, facility, bank)
        self.requests, self.signals, self.outages = RequestEditor(feeds), SignalEditor(feeds), DowntimeEditor(feeds)
        self.pages, self.documents = PageEditor(feeds), DocumentEditor(feeds)
        self.chats, self.scripts = ChatEditor(feeds), ScriptEditor(feeds)
        self.added: list[Added] = []
        self.edited: list[Edited] = []
        self.relabelled: list[Relabelled] = []
        self.deleted: list[Deleted] = []

    def run(self) -> DayReport:
        """Change what is due, then add as much as was taken, so that no day runs out of records."""
        for source, turns in DAILY.items():
            for turn in turns:
                self._take(source, turn)
        for source, turns in DAILY.items():
            for copy in range(turns.count("delete")):
                self._add(source, copy)
        day = f"{END_DAY + timedelta(days=self.number - 1):%Y-%m-%d}"
        report = DayReport(
            self.number, day, tuple(self.added), tuple(self.edited), tuple(self.relabelled), tuple(self.deleted)
        )
        self.truth.days.append(report)
        return report

    def _take(self, source: str, turn: str) -> None:
        """Edit, relabel or delete the record of a source that has waited longest."""
        churn = next(known for known in self.truth.churn if known.source == source)
        self.truth.churn.remove(churn)
        if turn == "edit":
            new = tag(self.rng)
            self._editor(source).edit(churn, new, self.minute)
            self.edited.append(Edited(churn.key, churn.phrase, new))
            self.truth.churn.append(replace(churn, phrase=new))
        elif turn == "relabel":
            labels = self.rng.choice([found for found in LABELS if found != churn.access])
            self._labeller(source).relabel(churn, labels)
            self.relabelled.append(Relabelled(churn.key, churn.access, labels))
            self.truth.churn.append(replace(churn, access=labels))
        else:
            self._delete(source, churn)
            self.deleted.append(Deleted(churn.key, churn.phrase))
            self.truth.counts[source] -= 1

    def _editor(self, source: str) -> _Editor:
        editors: dict[str, _Editor] = {
            "bely": self.log, "work_requests": self.requests, "downtime": self.outages, "wiki": self.pages,
            "icms": self.documents, "teams": self.chats, "code": self.scripts, "epics": self.signals,
            "sdds_docs": self.pages,
        }  # fmt: skip
        return editors[source]

    def _labeller(self, source: str) -> _Labeller:
        editor = self._editor(source)
        assert isinstance(editor, _Labeller)
        return editor

    def _delete(self, source: str, churn: Churn) -> None:
        editor = self._editor(source)
        if isinstance(editor, ChatEditor | ScriptEditor):
            editor.delete(churn, self.minute)
        else:
            editor.delete(churn)

    # additions

    def _add(self, source: str, copy: int) -> None:
        makers: dict[str, Callable[[], Churn]] = {
            "bely": self._add_log, "work_requests": self._add_request, "downtime": self._add_outage,
            "wiki": self._add_page, "icms": self._add_document, "teams": self._add_thread, "code": self._add_script,
            "epics": self._add_variable, "sdds_docs": self._add_note,
        }  # fmt: skip
        churn = makers[source]()
        self.truth.churn.append(churn)
        self.truth.counts[source] += 1
        self.added.append(Added(churn.key, churn.phrase))

    def _add_log(self) -> Churn:
        """A page of its own, and the day shift's document with an entry that later days leave alone."""
        shift = Shift(self.midnight // SHIFT_MINUTES + 1)
        phrase, routine = self.maker.entry(self.minute + 31)
        self.log.add(LogDocument(shift, [routine]))
        self.truth.counts["bely"] += 1
        self.added.append(Added(routine.key, phrase))
        phrase, entry = self.maker.entry(self.minute)
        self.log.add(LogDocument(shift, [entry], serial=_STAND + self.number))
        return Churn(entry.key, "bely", bely.file_name(shift), str(entry.id), phrase)

    def _add_request(self) -> Churn:
        number = FIRST_REQUEST + self.first["work_requests"] + self.number
        phrase, request = self.maker.request(number, self.minute)
        self.requests.add(request)
        return Churn(request.key, "work_requests", work_requests.file_name(request), str(number), phrase)

    def _add_outage(self) -> Churn:
        year = (END_DAY + timedelta(days=self.number - 1)).year
        phrase, outage = self.maker.outage(f"{year}-{self.first['downtime'] + self.number:04d}", self.minute)
        self.outages.add(outage)
        return Churn(outage.key, "downtime", downtime.file_name(outage), outage.id, phrase)

    def _add_page(self) -> Churn:
        phrase, page = self.maker.document(f"controls/Stickers_day_{self.number:03d}", self.minute, "md")
        self.pages.add(page)
        return Churn(f"WIKI:{page.id}", "wiki", wiki.file_name(page), page.id, phrase)

    def _add_document(self) -> Churn:
        name = Library.content_id(_DOCUMENTS + self.number)
        phrase, document = self.maker.document(name, self.minute, ("md", "html", "txt")[self.number % 3], "inventory")
        self.documents.add(document)
        file = f"{icms.DOCUMENTS}/{icms.file_name(document, document.revision)}"
        return Churn(document.key, "icms", file, document.id, phrase)

    def _add_thread(self) -> Churn:
        phrase, thread = self.maker.thread(self.first["teams"] + self.number, self.minute)
        self.chats.add(thread)
        return Churn(thread.key, "teams", teams.file_name(thread), f"{CHAT_CHANNEL}/{thread.id}", phrase)

    def _add_script(self) -> Churn:
        phrase, text = self.maker.script()
        name = f"{SCRIPTS}/where_day_{self.number:03d}.py"
        self.scripts.add(name, text, self.minute)
        return Churn(f"CODE:{name}", "code", f"code/{name}", name, phrase)

    def _add_variable(self) -> Churn:
        phrase, variable = self.maker.variable(_STAND + self.number)
        self.signals.add(variable)
        return Churn(variable.key, "epics", epics.file_name(variable), variable.name, phrase)

    def _add_note(self) -> Churn:
        name = f"{NOTES}/stand_notes_day_{self.number:03d}.md"
        phrase, text = self.maker.manual(f"Stand notes of day {self.number}")
        self.pages.add_text(f"sdds_docs/{name}", text, self.minute)
        return Churn(f"SDDS:{name}", "sdds_docs", f"sdds_docs/{name}", name, phrase)
