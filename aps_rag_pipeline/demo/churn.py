"""Records that `advance` will edit, relabel and delete: each holds an asset tag that stands nowhere else."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from aps_rag_pipeline.demo.extras import tag
from aps_rag_pipeline.demo.facility import SHIFT_MINUTES, Device, Facility, Kind, Signal
from aps_rag_pipeline.demo.items import (
    TOTAL_MINUTES,
    Document,
    Entry,
    Message,
    Outage,
    Section,
    Thread,
    Variable,
    WorkRequest,
)
from aps_rag_pipeline.demo.phrases import Bank

#: What one day takes of each source, in this order; a source that has no labels of its own is never relabelled.
DAILY: dict[str, tuple[str, ...]] = {
    "bely": ("edit", "relabel", "delete"),
    "work_requests": ("edit", "relabel", "delete"),
    "downtime": ("edit", "relabel", "delete"),
    "wiki": ("edit", "relabel", "delete"),
    "icms": ("edit", "relabel", "delete"),
    "teams": ("edit", "delete"),
    "code": ("edit", "delete"),
    "epics": ("edit", "delete"),
    "sdds_docs": ("edit", "delete"),
}
CHAT_CHANNEL = "ops-coordination"
SCRIPTS, NOTES = "ops-tools/python", "manuals"
#: Test stand channels: signals that no device of the machine has, so that they can come and go.
_READING = Signal("ReadAI", "reading", "V", 0, 10)
STAND = Kind(
    "stand", "test stand channel", "Controls", "TS:CH{n:03d}", "", "the test stand", (0,), "-", 999, (_READING,)
)


@dataclass
class Maker:
    """Makes tagged records. `rng` decides everything, so that a day makes the same ones each time."""

    facility: Facility
    bank: Bank
    rng: random.Random
    devices: list[Device]

    def sentence(self) -> tuple[str, str, Device]:
        """(asset tag, a sentence that holds it, the device it is about)."""
        device, phrase = self.rng.choice(self.devices), tag(self.rng)
        slots = {"dev": device.name, "place": device.place, "tag": phrase}
        return phrase, self.bank.say(self.rng, self.bank.phrases("extras", "churn"), slots, 0.4), device

    def title(self, device: Device) -> str:
        return self.bank.say(self.rng, self.bank.phrases("extras", "churn_title"), {"dev": device.name})

    def minute(self) -> int:
        return self.rng.randrange(600, TOTAL_MINUTES - SHIFT_MINUTES * 30)

    def entry(self, minute: int) -> tuple[str, Entry]:
        phrase, text, _ = self.sentence()
        return phrase, Entry(minute, self.rng.choice(self.facility.operators), text)

    def request(self, number: int, minute: int) -> tuple[str, WorkRequest]:
        phrase, text, device = self.sentence()
        return phrase, WorkRequest(
            number, minute, self.title(device), text, device, self.rng.choice(self.facility.operators),
            self.rng.choice(self.facility.experts(device.kind.system)), "In Progress",
        )  # fmt: skip

    def outage(self, outage_id: str, minute: int) -> tuple[str, Outage]:
        phrase, text, device = self.sentence()
        operator = self.rng.choice(self.facility.operators)
        return phrase, Outage(outage_id, minute, 7, self.title(device), text, device, "Unknown", operator)

    def document(self, name: str, minute: int, form: str, folder: str = "") -> tuple[str, Document]:
        phrase, text, device = self.sentence()
        title = self.title(device)
        return phrase, Document(
            name, title, self.rng.choice(self.facility.people).name, minute, [Section(title, [text])], form,
            folder=folder,
        )  # fmt: skip

    def thread(self, serial: int, minute: int) -> tuple[str, Thread]:
        phrase, text, _ = self.sentence()
        return phrase, Thread(CHAT_CHANNEL, serial, [Message(minute, self.rng.choice(self.facility.people), text)])

    def variable(self, number: int) -> tuple[str, Variable]:
        phrase, text, _ = self.sentence()
        name = STAND.name.format(n=number)
        return phrase, Variable(Device(name, STAND, 0, name, STAND.place), STAND.signals[0], text)

    def script(self) -> tuple[str, str]:
        """A small script whose comment holds the tag."""
        phrase, text, device = self.sentence()
        head = f'"""Tells where {device.name} stands."""'
        return phrase, f'{head}\n\n\ndef where():\n    # {text}\n    return "{device.place}"\n'

    def manual(self, name: str) -> tuple[str, str]:
        phrase, text, _ = self.sentence()
        return phrase, f"# {name}\n\n## Notes\n\n{text}\n"


def quiet_devices(facility: Facility, told: Collection[str]) -> list[Device]:
    """Thermocouples that no incident tells of: nobody asks about their stickers."""
    return [device for device in facility.by_kind["thermo"] if device.name not in told]
