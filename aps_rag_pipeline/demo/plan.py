"""What the demo will hold: the planted records, where they go, and the routine that fills the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from aps_rag_pipeline.demo import incidents as telling
from aps_rag_pipeline.demo import placing, sizes
from aps_rag_pipeline.demo.churn import quiet_devices
from aps_rag_pipeline.demo.extras import Extras, Planter
from aps_rag_pipeline.demo.facility import DAYS, KINDS, SHIFT_MINUTES, Facility, Shift
from aps_rag_pipeline.demo.incidents import Incident, Minutes
from aps_rag_pipeline.demo.items import PUBLIC, Document, Entry, LogDocument, Outage, Thread, Variable, WorkRequest
from aps_rag_pipeline.demo.library import Library, Tally, tallies
from aps_rag_pipeline.demo.phrases import Bank
from aps_rag_pipeline.demo.routine import Routine, Slots
from aps_rag_pipeline.demo.truth import Churn, Restricted

#: Log entries of a shift document, about.
_PER_SHIFT = 8
_SHIFTS = DAYS * 3


@dataclass
class Planted:
    """Records with a place of their own, by the slot or shift that they take."""

    counts: dict[str, int]
    minutes: Minutes = field(default_factory=Minutes)
    entries: dict[int, list[Entry]] = field(default_factory=dict)
    special_entries: list[LogDocument] = field(default_factory=list)
    requests: dict[int, WorkRequest] = field(default_factory=dict)
    outages: dict[int, Outage] = field(default_factory=dict)
    threads: dict[int, Thread] = field(default_factory=dict)
    documents: list[Document] = field(default_factory=list)
    pages: list[Document] = field(default_factory=list)
    scripts: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    stand: list[Variable] = field(default_factory=list)
    churn: list[Churn] = field(default_factory=list)
    restricted: list[Restricted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.request_slots = Slots(self.counts["work_requests"])
        self.outage_slots = Slots(self.counts["downtime"])
        self.thread_slots = Slots(self.counts["teams"])
        self.outage_ids = self.outage_slots.year_serials()

    def add_entry(self, entry: Entry) -> None:
        self.entries.setdefault(entry.minute // SHIFT_MINUTES, []).append(entry)


@dataclass
class Plan:
    """The whole demo before it is written. Planted records are kept; routine ones are made as they are written."""

    seed: int
    records: int
    facility: Facility
    bank: Bank
    incidents: list[Incident]
    extras: Extras
    planted: Planted
    routine: Routine
    library: Library
    downtime: dict[tuple[int, int], dict[str, Tally]] = field(default_factory=dict)
    report_keys: dict[tuple[int, int], str] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        return self.planted.counts

    # streams, in the order in which they are written

    def log_documents(self) -> Iterator[LogDocument]:
        """Every log document in order of time: the shifts with their entries, and pages of their own behind them."""
        planned = sum(len(found) for found in self.planted.entries.values())
        routine = self.counts["bely"] - planned - sum(len(page.entries) for page in self.planted.special_entries)
        wanted = min(_SHIFTS, max(len(self.planted.entries), self.counts["bely"] // _PER_SHIFT))
        used = sorted({*self.planted.entries, *(index * _SHIFTS // wanted for index in range(wanted))})
        special = sorted(self.planted.special_entries, key=lambda page: page.shift.index)
        written = 0
        for position, index in enumerate(used, start=1):
            while special and special[0].shift.index < index:
                yield special.pop(0)
            found = self.routine.entries(
                Shift(index), routine * position // len(used) - written, self.planted.minutes.taken
            )
            written += len(found)
            entries = [*self.planted.entries.get(index, ()), *found]
            if entries:
                yield LogDocument(Shift(index), entries, self._labels(index))
        yield from special

    def _labels(self, index: int) -> tuple[str, ...]:
        """A few shifts without planted records are for some groups only."""
        rng = self.facility.rng("labels", index)
        return (
            (rng.choice(("ops", "management")),)
            if index not in self.planted.entries and rng.random() < 0.03
            else ("public",)
        )

    def all_requests(self) -> Iterator[WorkRequest]:
        for slot in range(self.planted.request_slots.count):
            yield self.planted.requests.get(slot) or self.routine.request(slot)

    def all_outages(self) -> Iterator[Outage]:
        names = self.planted.outage_ids
        for slot, name in enumerate(names):
            yield self.planted.outages.get(slot) or self.routine.outage(slot, len(names), name)

    def all_threads(self) -> Iterator[Thread]:
        for slot in range(self.planted.thread_slots.count):
            yield self.planted.threads.get(slot) or self.routine.thread(slot, self.planted.thread_slots.count)

    def all_documents(self) -> Iterator[Document]:
        yield from self.planted.documents
        papers = self.library.papers_among(self.counts["icms"])
        first = self.library.first_note
        for number in range(self.counts["icms"] - papers - len(self.planted.documents)):
            yield self.library.note(first + number)

    def all_papers(self) -> Iterator[Document]:
        for number in range(self.library.papers_among(self.counts["icms"])):
            yield self.library.paper(number)

    def all_pages(self) -> Iterator[Document]:
        yield from self.planted.pages
        for number in range(self.counts["wiki"] - len(self.planted.pages)):
            yield self.library.page(number)

    def variables(self) -> list[Variable]:
        """Those of the incidents first, then of their neighbours, then of the rest; grouped as the files are."""
        found = list(islice(self._variables_by_need(), self.counts["epics"]))
        return sorted(found, key=lambda v: (v.device.kind.key, v.device.sector, v.device.name, v.signal.suffix))

    def _variables_by_need(self) -> Iterator[Variable]:
        seen: set[str] = set()
        for variable in chain(self.planted.stand, self._telling_variables(), self._other_variables()):
            if variable.name not in seen:
                seen.add(variable.name)
                yield variable

    def _telling_variables(self) -> Iterator[Variable]:
        for incident in self.incidents:
            yield incident.variable
        for incident in self.incidents:
            neighbour = next(self.facility.siblings(incident.device))
            yield Variable(neighbour, incident.variable.signal)

    def _other_variables(self) -> Iterator[Variable]:
        rest = list(self.facility.devices)
        self.facility.rng("variables").shuffle(rest)
        for device in chain((incident.device for incident in self.incidents), rest):
            for signal in device.kind.signals:
                yield Variable(device, signal)


def make(seed: int, records: int, held_out: bool) -> Plan:
    """Plan a demo.

    Raises:
        ValueError: too few records for what is planted.
    """
    facility, bank = Facility(seed), Bank(held_out)
    planted = Planted(dict(sizes.counts(records)))
    found = telling.plan(facility, bank, sizes.incidents(records))
    placing.place_incidents(facility, bank, planted, found)
    used = {incident.device.name for incident in found}
    planter = Planter(facility, bank, planted.minutes, used)
    placing.place_extras(planted, planter, sizes.extras(records))
    used |= planter.reserved
    quiet = quiet_devices(facility, used)
    placing.place_churn(facility, bank, planted, quiet)
    placing.place_restricted(facility, bank, planted, quiet)
    taken_numbers = {request.number for request in planted.requests.values()}
    routine = Routine(facility, bank, found, used, taken_numbers, planted.counts["work_requests"])
    library = Library(facility, bank, routine)
    planted.documents += [library.procedure(kind) for kind in KINDS]
    plan = Plan(seed, records, facility, bank, found, planter.made, planted, routine, library)
    # Reports are for everybody, and count what everybody may see.
    plan.downtime = tallies(outage for outage in plan.all_outages() if outage.access == PUBLIC)
    for number, (quarter, systems) in enumerate(sorted(plan.downtime.items()), start=len(KINDS)):
        report = library.report(number, *quarter, systems)
        planted.documents.append(report)
        plan.report_keys[quarter] = report.key
    return plan
