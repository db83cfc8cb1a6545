"""The days on which nothing much happens: most of what a facility writes down, and what a search must see past."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

from aps_rag_pipeline.demo.facility import CHANNELS, SHIFT_MINUTES, Device, Facility, Shift, at
from aps_rag_pipeline.demo.incidents import FILLS, Incident, number
from aps_rag_pipeline.demo.items import TOTAL_MINUTES, Entry, Message, Outage, Reply, Thread, WorkRequest
from aps_rag_pipeline.demo.phrases import Bank, table

#: Share of routine entries that sound like an incident but are a nuisance at another place.
_NEAR_MISS = 0.08
#: Shares of routine entries with a remark behind and a word before.
_TAIL, _LEAD = 0.4, 0.25
_STATUS = (("Completed", 0.7), ("In Progress", 0.12), ("Approved", 0.1), ("Cancelled", 0.08))


class Routine:
    """Makes any routine item from its number alone, so that nothing has to be kept in memory.

    `reserved` devices and `planned_requests` are those whose every mention is planned; of `requests` there are so many.
    """

    def __init__(
        self, facility: Facility, bank: Bank, incidents: list[Incident], reserved: Collection[str],
        planned_requests: Collection[int], requests: int,
    ) -> None:  # fmt: skip
        self.facility, self.bank = facility, bank
        kept = [device for device in facility.devices if device.name not in reserved]
        # Chamber thermocouples are many and dull; people write about the rest.
        self.devices = [device for device in kept if device.kind.key != "thermo" or device.name.endswith("5")]
        self.by_kind: dict[str, list[Device]] = {}
        for device in kept:
            self.by_kind.setdefault(device.kind.key, []).append(device)
        self.told = {(incident.mode["id"], incident.device.place) for incident in incidents}
        self.planned_requests = planned_requests
        self.requests = requests
        self.modes = table("faults")

    def slots(self, rng: random.Random, device: Device) -> Mapping[str, object]:
        signal = rng.choice(device.kind.signals)
        value = f"{rng.uniform(signal.low, signal.high):.3g}" + (f" {signal.unit}" if signal.unit else "")
        return {
            "dev": device.name, "place": device.place, "pv": device.pv(signal.suffix), "value": value,
            "n": rng.randint(38, 205), "m": f"{rng.uniform(2, 40):.1f}", "who": rng.choice(self.facility.people).first,
            "beamline": f"{rng.randint(1, 35)}-ID", "mode": rng.choice(FILLS), "wr": self._some_request(rng),
        }  # fmt: skip

    def _some_request(self, rng: random.Random) -> str:
        while True:
            found = FIRST_REQUEST + rng.randrange(self.requests)
            if found not in self.planned_requests:
                return f"WR {found}"

    def say(self, rng: random.Random, name: str, device: Device, rough: float) -> str:
        return self.bank.say(rng, self.bank.phrases("routine", name), self.slots(rng, device), rough)

    def entries(self, shift: Shift, count: int, taken: set[int]) -> list[Entry]:
        """`count` log entries of a shift at minutes that nobody has; `taken` grows by theirs."""
        rng = self.facility.rng("log", shift.index, self.bank.side)
        found = []
        for _ in range(count):
            minute = self._free(rng, shift.first_minute, shift.first_minute + SHIFT_MINUTES, taken)
            if minute is None:
                break
            entry = Entry(minute, rng.choice(self.facility.operators), self._entry_text(rng, minute))
            for _ in range(rng.choices((0, 1, 2), (70, 22, 8))[0]):
                at_minute = self._free(rng, minute + 1, shift.first_minute + SHIFT_MINUTES, taken)
                if at_minute is not None:
                    text = self.say(rng, "reply", rng.choice(self.devices), 0.8)
                    entry.replies.append(Reply(at_minute, rng.choice(self.facility.people), text))
            entry.replies.sort(key=lambda reply: reply.minute)
            found.append(entry)
        return found

    @staticmethod
    def _free(rng: random.Random, low: int, high: int, taken: set[int]) -> int | None:
        """A free minute in [low, high), or none where the shift is written full."""
        if low >= high:
            return None
        start = rng.randrange(low, high)
        found = next((m for m in (*range(start, high), *range(low, start)) if m not in taken), None)
        if found is not None:
            taken.add(found)
        return found

    def _entry_text(self, rng: random.Random, minute: int) -> str:
        if rng.random() < _NEAR_MISS:
            mode = rng.choice(self.modes)
            device = rng.choice(self.by_kind[mode["kind"]])
            if (mode["id"], device.place) not in self.told:
                slots = {**self.slots(rng, device), "value": number(rng, *mode["value"])}
                symptom = self.bank.say(rng, self.bank.of(mode["symptom"]), slots, 0.9)
                return f"{symptom}. {self.say(rng, 'nuisance', device, 0.8)}"
        device = rng.choice(self.devices)
        text = self.say(rng, "log", device, 0.9)
        if rng.random() < _TAIL:
            text = text.rstrip(".") + self.say(rng, "log_tail", device, 0.8)
        if rng.random() < _LEAD:
            clock = {"clock": f"{at(minute):%H:%M}"}
            text = self.bank.say(rng, self.bank.phrases("routine", "log_lead"), clock) + text
        return text

    def request(self, slot: int) -> WorkRequest:
        rng = self.facility.rng("request", slot, self.bank.side)
        device = rng.choice(self.devices)
        created = slot_minute(rng, slot, self.requests)
        status = rng.choices([name for name, _ in _STATUS], [weight for _, weight in _STATUS])[0]
        finished = created + rng.randrange(600, 40_000)
        if status == "Completed" and finished >= TOTAL_MINUTES:
            status = "In Progress"
        done = status == "Completed"
        return WorkRequest(
            FIRST_REQUEST + slot, created, self.say(rng, "wr_title", device, 0.2),
            self.say(rng, "wr_detail", device, 0.2), device, rng.choice(self.facility.operators),
            rng.choice(self.facility.experts(device.kind.system)), status,
            rng.choice(("2 - High", "3 - Normal", "3 - Normal", "4 - Low")),
            finished if done else 0,
            self.say(rng, "wr_resolution", device, 0.2) if done else "",
            access=("ops",) if rng.random() < 0.02 else ("public",),
        )  # fmt: skip

    def outage(self, slot: int, slots: int, outage_id: str) -> Outage:
        rng = self.facility.rng("outage", slot, self.bank.side)
        device = rng.choice(self.devices)
        cause = rng.choice(self.bank.phrases("routine", "down_cause"))
        return Outage(
            outage_id, slot_minute(rng, slot, slots), rng.randrange(4, 150), f"{device.name} - {cause}",
            self.say(rng, "down_detail", device, 0.3), device, cause, rng.choice(self.facility.operators),
            beam_lost=rng.random() < 0.7,
        )  # fmt: skip

    def thread(self, slot: int, slots: int) -> Thread:
        rng = self.facility.rng("thread", slot, self.bank.side)
        device = rng.choice(self.devices)
        minute = slot_minute(rng, slot, slots)
        messages = [Message(minute, rng.choice(self.facility.people), self.say(rng, "chat_open", device, 0.8))]
        for _ in range(rng.choices((0, 1, 2, 3), (25, 40, 25, 10))[0]):
            minute += rng.randrange(1, 90)
            text = self.say(rng, "chat_reply", device, 0.8)
            messages.append(Message(minute, rng.choice(self.facility.people), text, deleted=rng.random() < 0.02))
        return Thread(CHANNELS[device.kind.system], slot, messages)


FIRST_REQUEST = 20_000


def slot_minute(rng: random.Random, slot: int, slots: int) -> int:
    """A minute inside the stretch of time that belongs to a slot: numbers then rise with time."""
    low, high = slot * TOTAL_MINUTES // slots, (slot + 1) * TOTAL_MINUTES // slots
    return rng.randrange(low, max(high, low + 1))


class Slots:
    """Numbered places in time for the records of one source; planned records take theirs first."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.planned: set[int] = set()

    def take(self, minute: int) -> int:
        """The slot of this minute, or the nearest free one."""
        wanted = min(minute * self.count // TOTAL_MINUTES, self.count - 1)
        for distance in range(self.count):
            for slot in (wanted + distance, wanted - distance):
                if 0 <= slot < self.count and slot not in self.planned:
                    self.planned.add(slot)
                    return slot
        raise ValueError(f"more than {self.count} records planned")

    def year_serials(self) -> list[str]:
        """`2025-0412`: the year of each slot and its place in that year."""
        found, last, serial = [], 0, 0
        for slot in range(self.count):
            year = at(slot * TOTAL_MINUTES // self.count).year
            serial = serial + 1 if year == last else 1
            last = year
            found.append(f"{year}-{serial:04d}")
        return found
