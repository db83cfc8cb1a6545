"""What the demo will hold: the planted records, where they go, and the routine that fills the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from aps_rag_pipeline.demo import incidents as telling
from aps_rag_pipeline.demo.facility import DAYS, SHIFT_MINUTES, Facility, Shift
from aps_rag_pipeline.demo.incidents import Incident, Minutes, Teller
from aps_rag_pipeline.demo.items import Entry, Outage, Thread, Variable, WorkRequest
from aps_rag_pipeline.demo.phrases import Bank
from aps_rag_pipeline.demo.routine import FIRST_REQUEST, Routine, Slots
from aps_rag_pipeline.demo.sizes import counts
from aps_rag_pipeline.demo.sizes import incidents as incident_count

#: Log entries of a shift document, about.
_PER_SHIFT = 8
_SHIFTS = DAYS * 3


@dataclass
class Plan:
    """The whole demo before it is written. Planned records are kept; routine ones are made as they are written."""

    facility: Facility
    bank: Bank
    counts: dict[str, int]
    incidents: list[Incident]
    routine: Routine
    minutes: Minutes
    entries: dict[int, list[Entry]] = field(default_factory=dict)
    entry_access: dict[int, tuple[str, ...]] = field(default_factory=dict)
    requests: dict[int, WorkRequest] = field(default_factory=dict)
    outages: dict[int, Outage] = field(default_factory=dict)
    threads: dict[int, Thread] = field(default_factory=dict)
    request_slots: Slots = field(default_factory=lambda: Slots(0))
    outage_slots: Slots = field(default_factory=lambda: Slots(0))
    thread_slots: Slots = field(default_factory=lambda: Slots(0))

    def add_entry(self, entry: Entry) -> Entry:
        self.entries.setdefault(entry.minute // SHIFT_MINUTES, []).append(entry)
        return entry

    # streams, in the order in which they are written

    def shifts(self) -> Iterator[tuple[Shift, list[Entry], tuple[str, ...]]]:
        """Every shift that has a log document, with its entries and its labels."""
        planned = sum(len(found) for found in self.entries.values())
        routine = self.counts["bely"] - planned
        wanted = min(_SHIFTS, max(len(self.entries), self.counts["bely"] // _PER_SHIFT))
        used = sorted({*self.entries, *(index * _SHIFTS // wanted for index in range(wanted))})
        written = 0
        for position, index in enumerate(used, start=1):
            due = routine * position // len(used) - written
            shift = Shift(index)
            found = self.routine.entries(shift, due, self.minutes.taken)
            written += len(found)
            rng = self.facility.rng("labels", index)
            restricted = index not in self.entries and rng.random() < 0.03
            labels = self.entry_access.get(index, (rng.choice(("ops", "management")),) if restricted else ("public",))
            entries = [*self.entries.get(index, ()), *found]
            if entries:
                yield shift, entries, labels

    def all_requests(self) -> Iterator[WorkRequest]:
        for slot in range(self.request_slots.count):
            yield self.requests.get(slot) or self.routine.request(slot)

    def all_outages(self) -> Iterator[Outage]:
        names = self.outage_slots.year_serials()
        for slot, name in enumerate(names):
            yield self.outages.get(slot) or self.routine.outage(slot, len(names), name)

    def all_threads(self) -> Iterator[Thread]:
        for slot in range(self.thread_slots.count):
            yield self.threads.get(slot) or self.routine.thread(slot, self.thread_slots.count)

    def variables(self) -> list[Variable]:
        """Those of the incidents first, then of their neighbours, then of the rest; grouped as the files are."""
        found = list(islice(self._variables_by_need(), self.counts["epics"]))
        return sorted(found, key=lambda v: (v.device.kind.key, v.device.sector, v.device.name, v.signal.suffix))

    def _variables_by_need(self) -> Iterator[Variable]:
        seen: set[str] = set()
        for variable in chain(self._telling_variables(), self._other_variables()):
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
    sizes = dict(counts(records))
    found = telling.plan(facility, bank, incident_count(records))
    reserved = {incident.device.name for incident in found}
    routine = Routine(facility, bank, found, reserved, sizes["work_requests"])
    plan = Plan(
        facility, bank, sizes, found, routine, Minutes(),
        request_slots=Slots(sizes["work_requests"]), outage_slots=Slots(sizes["downtime"]),
        thread_slots=Slots(sizes["teams"]),
    )  # fmt: skip
    serials = plan.outage_slots.year_serials()
    for incident in found:
        _place(plan, incident, serials)
    return plan


def _place(plan: Plan, incident: Incident, serials: list[str]) -> None:
    """Write an incident into its sources. Every fifth has no chat, every seventh cost no beam time."""
    teller = Teller(plan.facility, plan.bank, incident)
    place = int(incident.id.split("-")[1])
    request_slot = plan.request_slots.take(incident.start)
    number = FIRST_REQUEST + request_slot
    plan.add_entry(teller.log(plan.minutes, number))
    plan.add_entry(teller.recovered(plan.minutes))
    if place % 2:
        plan.add_entry(teller.decoy(plan.minutes))
    plan.requests[request_slot] = teller.request(number)
    if place % 7:
        slot = plan.outage_slots.take(incident.start)
        plan.outages[slot] = teller.outage(serials[slot])
    if place % 5:
        slot = plan.thread_slots.take(incident.start)
        plan.threads[slot] = teller.chat(slot)
