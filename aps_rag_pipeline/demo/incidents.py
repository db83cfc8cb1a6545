"""Incidents: one fault told by several sources, each in its own words, tied together as people tie them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from aps_rag_pipeline.demo.facility import CHANNELS, KIND_BY_KEY, SHIFT_MINUTES, Device, Facility, Person, Shift, at
from aps_rag_pipeline.demo.items import TOTAL_MINUTES, Entry, Message, Outage, Reply, Thread, Variable, WorkRequest
from aps_rag_pipeline.demo.phrases import Bank, table

LOG_URL = "https://bely.lakeside.example/bely/views/itemDomainLogbook/view.xhtml?logId={id}"
FILLS = ("324 bunch", "48 bunch", "24 singlets", "hybrid")


@dataclass(slots=True)
class Incident:
    """What happened, before anybody writes about it. Ids are set as the records are placed."""

    id: str
    mode: dict[str, Any]
    device: Device
    variable: Variable
    value: str
    part: str
    start: int
    minutes: int
    serial: str
    symptom: str
    cause: str
    fix: str
    plain: str
    operator: Person
    expert: Person
    procedure: str = ""
    entry: Entry | None = None
    recovery: Entry | None = None
    decoy: Entry | None = None
    request: WorkRequest | None = None
    outage: Outage | None = None
    thread: Thread | None = None

    @property
    def end(self) -> int:
        return self.start + self.minutes

    @property
    def system(self) -> str:
        return self.device.kind.system

    @property
    def hours(self) -> str:
        return f"{self.minutes / 60:.1f}"

    @property
    def shift(self) -> Shift:
        return Shift(self.start // SHIFT_MINUTES)


def plan(facility: Facility, bank: Bank, count: int) -> list[Incident]:
    """Distinct faults: no device fails twice, and no two places have the same fault, so each has one right answer."""
    rng = facility.rng("incidents", bank.side)
    modes = list(table("faults"))
    rng.shuffle(modes)
    free = {key: _shuffled(rng, devices) for key, devices in facility.by_kind.items()}
    seen: set[tuple[str, str]] = set()
    shifts = rng.sample(range(6, TOTAL_MINUTES // SHIFT_MINUTES - 6), count * 2)
    found: list[Incident] = []
    turn = 0
    while len(found) < count and turn < count * 4:
        mode = modes[turn % len(modes)]
        turn += 1
        device = next((d for d in free[mode["kind"]] if (mode["id"], d.place) not in seen), None)
        # Some of each kind stay whole: routine is written about them.
        if device is None or len(free[mode["kind"]]) <= len(facility.by_kind[mode["kind"]]) // 3:
            continue
        free[mode["kind"]].remove(device)
        seen.add((mode["id"], device.place))
        start = shifts[len(found)] * SHIFT_MINUTES + rng.randrange(30, 360)
        found.append(_incident(facility, bank, f"INC-{len(found) + 1:03d}", mode, device, start))
    return found


def _shuffled(rng: random.Random, devices: tuple[Device, ...]) -> list[Device]:
    found = list(devices)
    rng.shuffle(found)
    return found


def _incident(facility: Facility, bank: Bank, name: str, mode: dict[str, Any], device: Device, start: int) -> Incident:
    rng = facility.rng(name, bank.side)
    signal = next(s for s in KIND_BY_KEY[mode["kind"]].signals if s.suffix == mode["pv"])
    value = number(rng, *mode["value"]) + (f" {signal.unit}" if signal.unit else "")
    part = rng.choice(mode["parts"])
    slots = {"dev": device.name, "value": value, "part": part, "place": device.place}

    def say(key: str, rough: float) -> str:
        return bank.say(rng, bank.of(mode[key]), slots, rough)

    return Incident(
        id=name, mode=mode, device=device, variable=Variable(device, signal), value=value, part=part, start=start,
        minutes=rng.randrange(18, 540), serial=f"{rng.choice('ABCDEFGHJK')}{rng.randrange(10_000, 99_999)}",
        symptom=say("symptom", 0.9), cause=say("cause", 0.6), fix=say("fix", 0.6), plain=say("plain", 0.0),
        operator=rng.choice(facility.operators), expert=rng.choice(facility.experts(device.kind.system)),
    )  # fmt: skip


def number(rng: random.Random, low: float, high: float) -> str:
    """A value between two bounds, written as precisely as the bounds deserve."""
    if isinstance(low, int) and isinstance(high, int):
        return str(rng.randint(low, high)) if high - low > 90 or low == high else f"{rng.uniform(low, high):.1f}"
    return f"{rng.uniform(low, high):.2f}"


class Teller:
    """Writes the records of one incident. The order matters: each names what is already there."""

    def __init__(self, facility: Facility, bank: Bank, incident: Incident) -> None:
        self.facility, self.bank, self.incident = facility, bank, incident
        self.rng = facility.rng(incident.id, "tell", bank.side)
        clock = at(incident.start).strftime("%H:%M")
        self.slots: dict[str, object] = {
            "symptom": incident.symptom, "cause": incident.cause, "fix": incident.fix, "dev": incident.device.name,
            "pv": incident.variable.name, "part": incident.part, "value": incident.value, "clock": clock,
            "who": incident.expert.first, "mode": self.rng.choice(FILLS), "hours": incident.hours,
            "serial": incident.serial, "category": incident.mode["category"], "doc": incident.procedure,
            "current": self.rng.choice((102, 130, 160, 200)),
        }  # fmt: skip

    def say(self, name: str, rough: float = 0.7) -> str:
        return self.bank.say(self.rng, self.bank.phrases("incident", name), self.slots, rough)

    def log(self, free: Minutes, request_number: int) -> Entry:
        """The first entry with its replies: what was seen, the suspicion, the cause, the cure."""
        incident = self.incident
        entry = Entry(free.take(incident.start + self.rng.randrange(2, 7)), incident.operator, self.say("log_first"))
        self.slots |= {"log": entry.id, "wr": request_number, "url": LOG_URL.format(id=entry.id)}
        third = max(incident.minutes // 3, 5)
        for part, (name, author) in enumerate(
            (("log_suspect", incident.operator), ("log_cause", incident.operator), ("log_fix", incident.expert))
        ):
            minute = free.take(entry.minute + 4 + part * third)
            entry.replies.append(Reply(minute, author, self.say(name)))
        incident.entry = entry
        return entry

    def recovered(self, free: Minutes) -> Entry:
        incident = self.incident
        minute = free.take(incident.end + self.rng.randrange(3, 12))
        self.slots["clock"] = at(incident.end).strftime("%H:%M")
        author = self.rng.choice(self.facility.operators)
        incident.recovery = Entry(minute, author, self.say("log_recovery"))
        return incident.recovery

    def decoy(self, free: Minutes) -> Entry:
        """The same device on another day, with nothing to do with the fault."""
        incident = self.incident
        away = self.rng.choice((-1, 1)) * self.rng.randrange(20, 200) * 1440
        minute = free.take(min(max(incident.start + away, 600), TOTAL_MINUTES - 600))
        incident.decoy = Entry(minute, self.rng.choice(self.facility.operators), self.say("decoy"))
        return incident.decoy

    def request(self, number: int) -> WorkRequest:
        incident, rng = self.incident, self.rng
        created = incident.start + rng.randrange(20, 60)
        incident.request = WorkRequest(
            number, created, self.say("wr_title", 0.3), self.say("wr_detail", 0.3), incident.device,
            incident.operator, incident.expert, "Completed", "1 - Urgent",
            max(created + 30, incident.end + rng.randrange(60, 2000)), self.say("wr_resolution", 0.3),
            f"log {self.slots['log']}",
        )  # fmt: skip
        return incident.request

    def outage(self, outage_id: str) -> Outage:
        incident = self.incident
        incident.outage = Outage(
            outage_id, incident.start, incident.minutes, f"{incident.device.name} - {incident.mode['category']}",
            self.say("down_detail", 0.3), incident.device, incident.mode["category"], incident.operator,
            log_entries=str(self.slots["log"]), work_requests=str(self.slots["wr"]), pvs=incident.variable.name,
        )  # fmt: skip
        return incident.outage

    def chat(self, serial: int) -> Thread:
        incident = self.incident
        minute = incident.start + self.rng.randrange(8, 16)
        turns = (("chat_open", incident.operator), ("chat_ask", self.rng.choice(self.facility.operators)),
                 ("chat_answer", incident.expert), ("chat_done", incident.expert))  # fmt: skip
        messages = []
        for name, author in turns:
            messages.append(Message(minute, author, self.say(name)))
            minute += self.rng.randrange(3, 30)
        incident.thread = Thread(CHANNELS[incident.system], serial, messages)
        return incident.thread


class Minutes:
    """Minutes of the log book that are taken; an entry that comes late waits for the next free one."""

    def __init__(self) -> None:
        self.taken: set[int] = set()

    def take(self, minute: int) -> int:
        while minute in self.taken:
            minute += 1
        self.taken.add(minute)
        return minute
