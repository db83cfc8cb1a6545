"""Records with a twist: facts to be asked for, late entries, duplicates, corrections, contradictions, credentials."""

from __future__ import annotations

import random
import string
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from aps_rag_pipeline.demo.facility import SHIFT_MINUTES, SHIFTS, Device, Facility, Shift, at
from aps_rag_pipeline.demo.incidents import Minutes, number
from aps_rag_pipeline.demo.items import TOTAL_MINUTES, Document, Entry, Message, Section, Thread, WorkRequest
from aps_rag_pipeline.demo.phrases import Bank, table
from aps_rag_pipeline.demo.truth import Contradiction, Correction, Credential, Duplicate, Late, Question, QuestionType

_DAY = 1440
#: Devices of each kind that are kept for routine.
_LEFT_ALONE = 2


@dataclass
class Extras:
    """What was made: records by where they go, and what the truth says of them."""

    entries: list[Entry] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    corrections: list[Correction] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)
    credentials: list[Credential] = field(default_factory=list)


class Planter:
    """Makes the extras. It takes devices that nobody else writes about, so that each answer stands in one place."""

    def __init__(self, facility: Facility, bank: Bank, minutes: Minutes, used: Collection[str]) -> None:
        self.facility, self.bank, self.minutes = facility, bank, minutes
        self.rng = facility.rng("extras", bank.side)
        self.made = Extras()
        #: (kind, place) pairs that a question of this planter already points at.
        self.taken: set[tuple[str, str]] = set()
        self.reserved: set[str] = set()
        self._free = [d for d in facility.devices if d.name not in used and d.kind.key != "thermo"]
        self._left = Counter(device.kind.key for device in self._free)
        self.rng.shuffle(self._free)

    def device(self, kind: str = "") -> Device:
        """A device whose kind and place no other planted record shares."""
        for device in self._free:
            if kind == device.kind.key or (not kind and device.kind.key != "door"):
                if (device.kind.key, device.place) in self.taken or self._left[device.kind.key] <= _LEFT_ALONE:
                    continue
                self._left[device.kind.key] -= 1
                self.taken.add((device.kind.key, device.place))
                self.reserved.add(device.name)
                return device
        raise ValueError(f"no {kind or 'device'} is left to plant something on")

    def say(self, name: str, slots: dict[str, object], rough: float = 0.6) -> str:
        return self.bank.say(self.rng, self.bank.phrases("extras", name), slots, rough)

    def entry(self, text: str, minute: int | None = None) -> Entry:
        when = self.rng.randrange(600, TOTAL_MINUTES - 20 * _DAY) if minute is None else minute
        entry = Entry(self.minutes.take(when), self.rng.choice(self.facility.operators), text)
        self.made.entries.append(entry)
        return entry

    def ask(self, kind: QuestionType, text: str, gold: tuple[str, ...], nuggets: tuple[str, ...]) -> None:
        name = f"{kind}-{len(self.made.questions) + 1:03d}x"
        self.made.questions.append(Question(name, kind, text, gold, nuggets))

    def slots(self, device: Device) -> dict[str, object]:
        signal = self.rng.choice(device.kind.measured)
        value = f"{number(self.rng, float(signal.low), float(signal.high))} {signal.unit}"
        who = self.rng.choice(self.facility.people).first
        return {"dev": device.name, "place": device.place, "noun": device.kind.noun, "value": value, "who": who}

    def facts(self, rounds: int) -> None:
        for fact in table("facts") * rounds:
            try:
                device = self.device(fact["kind"])
            except ValueError:
                continue  # few klystrons, many facts
            low, high = fact["value"]
            figure = f"{self.rng.randint(low, high)}" if isinstance(low, int) else f"{self.rng.uniform(low, high):.2f}"
            slots = {**self.slots(device), "x": f"{figure} {fact['unit']}"}
            entry = self.entry(self.bank.say(self.rng, self.bank.of(fact["text"]), slots, 0.5))
            self.ask("fact", self.bank.say(self.rng, self.bank.of(fact["ask"]), slots), (entry.key,), (figure,))

    def late_entries(self, count: int) -> None:
        for _ in range(count):
            device = self.device()
            happened = self.rng.randrange(_DAY, TOTAL_MINUTES - 20 * _DAY)
            when = at(happened)
            slots = {**self.slots(device), "day": f"{when:%m/%d/%Y}", "clock": f"{when:%H:%M}",
                     "shift": Shift(happened // SHIFT_MINUTES).name}  # fmt: skip
            entry = self.entry(self.say("late", slots), happened + self.rng.randrange(2 * _DAY, 9 * _DAY))
            asked = {**slots, "day": spoken_day(happened)}
            self.ask("time", self.say("late_ask", asked, 0.0), (entry.key,), (str(slots["value"]),))
            self.made.late.append(Late(entry.key, when.isoformat(), at(entry.minute).isoformat()))

    def duplicate_entries(self, count: int) -> None:
        for _ in range(count):
            text = self.say("duplicate", self.slots(self.device()))
            first = self.entry(text)
            second = self.entry(text, first.minute + self.rng.randrange(2, 30))
            self.made.duplicates.append(Duplicate((first.key, second.key), text))

    def corrected(self, count: int) -> None:
        for _ in range(count):
            device = self.device()
            slots = self.slots(device)
            signal = device.kind.measured[0]
            wrong, right = self._two(10, 99, signal.unit)
            first = self.entry(self.say("original", {**slots, "wrong": wrong}))
            later = first.minute + self.rng.randrange(_DAY // 2, 3 * _DAY)
            second = self.entry(self.say("correction", {**slots, "right": right, "log": first.id}), later)
            self.ask("fact", self.say("correction_ask", slots, 0.0), (second.key, first.key), (right,))
            self.made.corrections.append(Correction(second.key, first.key, wrong, right))

    def contradicted(self, count: int, requests: Iterator[tuple[int, int]]) -> list[WorkRequest]:
        """Two records that disagree; `requests` gives number and minute of the work requests that may be used."""
        made = []
        for _ in range(count):
            device = self.device()
            first, second = self._two(21, 89, "m")
            slots = {**self.slots(device), "first": first, "second": second}
            entry = self.entry(self.say("contra_log", slots))
            request_number, minute = next(requests)
            request = WorkRequest(
                request_number, minute, self.say("contra_title", slots, 0.0), self.say("contra_request", slots, 0.0),
                device, self.rng.choice(self.facility.operators),
                self.rng.choice(self.facility.experts(device.kind.system)), "Approved",
            )  # fmt: skip
            made.append(request)
            self.ask("fact", self.say("contra_ask", slots, 0.0), (entry.key, request.key), (first.split()[0],))
            about = f"cable length of {device.name}"
            self.made.contradictions.append(Contradiction((entry.key, request.key), about, (first, second)))
        return made

    def _two(self, low: int, high: int, unit: str) -> tuple[str, str]:
        first, second = self.rng.sample(range(low, high), 2)
        return f"{first}.{self.rng.randrange(1, 10)} {unit}", f"{second}.{self.rng.randrange(1, 10)} {unit}"

    # credentials

    def secret(self, length: int = 18) -> str:
        """A string that is nowhere else, with the mix of characters that detectors look for."""
        body = "".join(self.rng.choice(string.ascii_letters + string.digits) for _ in range(length - 3))
        return f"{self.rng.choice('QXZ')}{body}7k"

    def logged_credentials(self) -> None:
        for phrase, kind in zip(self.bank.phrases("extras", "credential_log"), ("password", "token"), strict=True):
            secret = self.secret(20) if kind == "password" else f"ghp_{self.secret(36)}"
            slots = {**self.slots(self.device()), "secret": secret}
            entry = self.entry(self.bank.fill(self.rng, phrase, slots))
            self.made.credentials.append(Credential(entry.key, secret, kind))

    def chat_credential(self, channel: str, serial: int, minute: int) -> Thread:
        secret = self.secret()
        message = Message(
            minute, self.rng.choice(self.facility.people), self.say("credential_chat", {"secret": secret}, 0)
        )
        thread = Thread(channel, serial, [message])
        self.made.credentials.append(Credential(thread.key, secret, "password"))
        return thread

    def page_credential(self) -> Document:
        secret = self.secret()
        text = self.say("credential_page", {"secret": secret}, 0)
        page = Document("controls/Backup_share", "Backup share", self.rng.choice(self.facility.people).name,
                        _DAY * 30, [Section("Backup share", [text])])  # fmt: skip
        self.made.credentials.append(Credential(f"WIKI:{page.id}", secret, "basic_auth"))
        return page

    def code_credential(self, key: str) -> str:
        """A script that should not have been committed: an access key, and a private key in the text."""
        access = "AKIA" + "".join(self.rng.choice(string.ascii_uppercase + "234567") for _ in range(16))
        body = [self.secret(64) for _ in range(3)]
        self.made.credentials.append(Credential(key, access, "aws_key"))
        self.made.credentials += [Credential(key, line, "private_key") for line in body]
        # Put together from pieces, so that this file is not taken for one that holds a key.
        kind = "RSA PRIVATE KEY"
        return "\n".join(
            [
                "def upload(path):",
                '    """Send a file to the archive bucket."""',
                f'    aws_access_key_id = "{access}"',
                '    key = """',
                f"-----BEGIN {kind}-----",
                *body,
                f"-----END {kind}-----",
                '"""',
                "    return path, aws_access_key_id, key",
                "",
            ]
        )


def spoken_day(minute: int) -> str:
    when = at(minute)
    return f"{when:%B} {when.day}, {when.year}"


def shift_name(minute: int) -> str:
    return SHIFTS[minute // SHIFT_MINUTES % 3][0]


def tag(rng: random.Random) -> str:
    """An asset tag: one token that stands in one record only."""
    letters = "".join(rng.choice("BCDFGHJKLMNPQRTVWXZ") for _ in range(4))
    return f"asset tag {letters}{rng.randrange(10_000, 99_999)}"
