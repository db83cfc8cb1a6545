"""Documents of the demo: procedures, quarterly reports, notes, papers and wiki pages, each made from its number."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from aps_rag_pipeline.demo.facility import FIRST_DAY, KINDS, SYSTEMS, Device, Facility, Kind, Signal, at
from aps_rag_pipeline.demo.items import TOTAL_MINUTES, Document, Outage, Section
from aps_rag_pipeline.demo.phrases import Bank, table
from aps_rag_pipeline.demo.routine import Routine

ORDINALS = ("first", "second", "third", "fourth")
#: Office formats are dear to write and to read: beyond these numbers documents are HTML, Markdown or text.
_FORM_LIMITS = {"docx": 150, "pdf": 120, "xlsx": 60, "pptx": 60}
_FIRST_CONTENT_ID, _CONTENT_STEP = 1_401_100, 37
_PAPERS_SHARE = 8


@dataclass
class Tally:
    """What one system cost in one quarter."""

    events: int = 0
    hours: float = 0.0
    longest: float = 0.0
    keys: list[str] = field(default_factory=list)

    def add(self, outage: Outage) -> None:
        self.events += 1
        self.hours += outage.hours
        self.longest = max(self.longest, outage.hours)
        self.keys.append(outage.key)


def quarter(minute: int) -> tuple[int, int]:
    day = at(minute)
    return day.year, (day.month - 1) // 3 + 1


def tallies(outages: Iterator[Outage]) -> dict[tuple[int, int], dict[str, Tally]]:
    """Downtime by quarter and system, over every record."""
    found: dict[tuple[int, int], dict[str, Tally]] = {}
    for outage in outages:
        systems = found.setdefault(quarter(outage.minute), {})
        systems.setdefault(outage.device.kind.system, Tally()).add(outage)
    return found


def quarter_slots(year: int, number: int) -> dict[str, object]:
    return {"year": year, "quarter": ORDINALS[number - 1], "quarter_n": number}


class Library:
    """Makes documents. What it is asked for twice comes out the same."""

    def __init__(self, facility: Facility, bank: Bank, routine: Routine) -> None:
        self.facility, self.bank, self.routine = facility, bank, routine

    def say(self, rng: random.Random, name: str, slots: dict[str, object]) -> str:
        return self.bank.say(rng, self.bank.phrases("documents", name), slots)

    @staticmethod
    def content_id(number: int) -> str:
        return f"APS_{_FIRST_CONTENT_ID + number * _CONTENT_STEP}"

    @staticmethod
    def procedure_number(kind: Kind) -> int:
        return KINDS.index(kind)

    @property
    def first_note(self) -> int:
        """Number of the first document that is neither procedure nor report."""
        return 100

    @staticmethod
    def papers_among(icms: int) -> int:
        """How many of the documents are papers."""
        return max(icms // _PAPERS_SHARE, 4)

    def procedure(self, kind: Kind) -> Document:
        """How a kind of device is brought back: hazards, steps, the limits of its signals, and its weak points."""
        rng = self.facility.rng("procedure", kind.key, self.bank.side)
        number = self.procedure_number(kind)
        modes = [mode for mode in table("faults") if mode["kind"] == kind.key]
        slots: dict[str, object] = {
            "noun": kind.noun, "system": kind.system, "signal": kind.signals[0].words,
            "parts": ", ".join(part for mode in modes for part in mode["parts"]),
        }  # fmt: skip
        steps = [self.bank.fill(rng, step, slots) for step in self.bank.phrases("documents", "procedure_step")]
        limits = [["Signal", "Meaning", "Low", "High", "Unit"]]
        limits += [[s.suffix, s.words, f"{s.low:g}", f"{s.high:g}", s.unit] for s in kind.signals]
        return Document(
            self.content_id(number), self.say(rng, "procedure_title", slots),
            rng.choice(self.facility.experts(kind.system)).name, rng.randrange(0, 40_000),
            [
                Section("1. Purpose", [self.say(rng, "procedure_purpose", slots)]),
                Section("2. Hazards", list(self.bank.phrases("documents", "procedure_hazard"))),
                Section("3. Steps", [f"{index}. {step}" for index, step in enumerate(steps, start=1)]),
                Section("4. Limits", [f"Usual range of a {kind.noun}."], limits),
            ],
            self.form(number), "02" if number % 4 == 1 else "01", folder="procedures",
            old_revisions=("01",) if number % 4 == 1 else (),
        )  # fmt: skip

    def report(self, number: int, year: int, of_year: int, systems: dict[str, Tally]) -> Document:
        """The downtime of one quarter by system, in words and as a table."""
        rng = self.facility.rng("report", year, of_year, self.bank.side)
        slots = quarter_slots(year, of_year)
        rows = [["System", "Events", "Hours lost", "Longest (h)"]]
        lines = []
        for system in SYSTEMS:
            tally = systems.get(system, Tally())
            figures = {"count": tally.events, "hours": f"{tally.hours:.1f}", "longest": f"{tally.longest:.1f}"}
            rows.append([system, *(str(value) for value in figures.values())])
            if tally.events:
                lines.append(self.say(rng, "report_row", {**slots, **figures, "system": system}))
        return Document(
            self.content_id(number), self.say(rng, "report_title", slots), rng.choice(self.facility.people).name,
            min(_quarter_end(year, of_year), TOTAL_MINUTES - 1),
            [Section("Summary", [self.say(rng, "report_intro", slots), *lines]), Section("Events by system", [], rows)],
            self.form(number), folder="reports",
        )  # fmt: skip

    def note(self, number: int) -> Document:
        rng = self.facility.rng("note", number, self.bank.side)
        device = rng.choice(self.routine.devices)
        minute = rng.randrange(TOTAL_MINUTES)
        slots = self._slots(rng, device, number, minute)
        texts = rng.sample(self.bank.phrases("documents", "note_text"), 3)
        sections = [Section("Summary", [self.bank.fill(rng, texts[0], slots)])]
        sections.append(Section("Discussion", [self.bank.fill(rng, text, slots) for text in texts[1:]]))
        if rng.random() < 0.5:
            sections.append(_readings(rng, device))
        restricted = rng.random() < 0.04
        return Document(
            self.content_id(number), self.say(rng, "note_title", slots), rng.choice(self.facility.people).name,
            minute, sections, self.form(number), access=("management",) if restricted else ("public",), folder="notes",
        )  # fmt: skip

    def paper(self, number: int) -> Document:
        """A paper; even ones are known by arXiv id, odd ones by DOI. Neither exists outside the demo."""
        rng = self.facility.rng("paper", number, self.bank.side)
        kind = KINDS[number % len(KINDS)]
        slots: dict[str, object] = {"noun": kind.noun, "signal": kind.signals[0].words}
        year = 2018 + number % 8
        arxiv, doi = f"arXiv:{year % 100}01.{90_000 + number}", f"doi:10.99999/lps.{year}.{number:04d}"
        authors = rng.sample(self.facility.people, 3)
        abstract = [self.bank.fill(rng, text, slots) for text in self.bank.phrases("documents", "paper_abstract")]
        return Document(
            doi if number % 2 else arxiv, self.say(rng, "paper_title", slots),
            "; ".join(person.name for person in authors), 0,
            [Section("Abstract", abstract), _readings(rng, self.routine.by_kind[kind.key][0])],
            "pdf" if number < _FORM_LIMITS["pdf"] else "md", revision=str(year),
        )  # fmt: skip

    def page(self, number: int) -> Document:
        """A wiki page by its number, which stands in its title and so in its id."""
        rng = self.facility.rng("page", number, self.bank.side)
        device = rng.choice(self.routine.devices)
        minute = rng.randrange(TOTAL_MINUTES)
        slots = self._slots(rng, device, number, minute)
        texts = rng.sample(self.bank.phrases("documents", "wiki_text"), 3)
        title = self.say(rng, "wiki_title", slots)
        form = WIKI_FORMS[number % len(WIKI_FORMS)]
        restricted = form == "md" and rng.random() < 0.05
        return Document(
            f"{folder_of(device.kind.system)}/{title.title().replace(' ', '_')}", title,
            rng.choice(self.facility.people).name, minute,
            [Section(title, [self.bank.fill(rng, texts[0], slots)]),
             Section("Notes", [self.bank.fill(rng, text, slots) for text in texts[1:]])],
            form, access=("safety",) if restricted else ("public",),
        )  # fmt: skip

    def form(self, number: int) -> str:
        """The file format of the n-th document: all of them early on, the dear ones never too often."""
        order = ("docx", "html", "pdf", "md", "xlsx", "txt", "pptx")
        form, turn = order[number % len(order)], number // len(order)
        return form if turn < _FORM_LIMITS.get(form, TOTAL_MINUTES) else ("html", "md", "txt")[number % 3]

    def _slots(self, rng: random.Random, device: Device, number: int, minute: int) -> dict[str, object]:
        signal = rng.choice(device.kind.signals)
        return {
            "noun": device.kind.noun, "system": device.kind.system, "place": device.place, "dev": device.name,
            "signal": signal.words, "value": reading(rng, signal), "n": number, "month": f"{at(minute):%B %Y}",
            "who": rng.choice(self.facility.people).first,
        }  # fmt: skip


WIKI_FORMS = ("md", "txt", "wiki")


def concept_page(facility: Facility, bank: Bank, number: int) -> Document:
    """The page of the n-th concept of the bank."""
    concept = table("concepts")[number]
    rng = facility.rng("concept", number, bank.side)
    title = concept["id"].replace("_", " ")
    texts: list[str] = bank.of(concept["text"])
    return Document(
        f"{folder_of(concept['system'])}/{concept['id']}", title, rng.choice(facility.people).name,
        rng.randrange(TOTAL_MINUTES), [Section(title, [texts[0]]), Section("In practice", texts[1:])],
        WIKI_FORMS[number % len(WIKI_FORMS)],
    )  # fmt: skip


def folder_of(system: str) -> str:
    return system.lower().replace(" ", "-")


def reading(rng: random.Random, signal: Signal) -> str:
    value = f"{rng.uniform(signal.low, signal.high):.3g}"
    return f"{value} {signal.unit}" if signal.unit else value


def _readings(rng: random.Random, device: Device) -> Section:
    rows = [["Signal", "Reading", "Remark"]]
    rows += [[signal.words, reading(rng, signal), rng.choice(("ok", "ok", "watch"))] for signal in device.kind.signals]
    return Section("Readings", [], rows)


def _quarter_end(year: int, number: int) -> int:
    month = number * 3 + 1
    end = FIRST_DAY.replace(year=year + month // 13, month=(month - 1) % 12 + 1)
    return (end - FIRST_DAY).days * 1440 + 9 * 60
