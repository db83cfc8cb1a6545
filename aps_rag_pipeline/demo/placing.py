"""Giving planted records their places: which shift, which slot, which number, which file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aps_rag_pipeline.demo.churn import CHAT_CHANNEL, DAILY, NOTES, SCRIPTS, Maker
from aps_rag_pipeline.demo.extras import Planter
from aps_rag_pipeline.demo.facility import SHIFT_MINUTES, Device, Facility, Shift
from aps_rag_pipeline.demo.incidents import Incident, Teller
from aps_rag_pipeline.demo.items import PUBLIC, LogDocument
from aps_rag_pipeline.demo.library import Library, concept_page
from aps_rag_pipeline.demo.phrases import Bank, table
from aps_rag_pipeline.demo.routine import FIRST_REQUEST
from aps_rag_pipeline.demo.truth import Churn, Restricted
from aps_rag_pipeline.demo.writers import bely, downtime, epics, icms, teams, wiki, work_requests

if TYPE_CHECKING:
    from aps_rag_pipeline.demo.plan import Planted

#: Share of incidents that lack a source, as in life: every n-th.
_NO_DOWNTIME, _NO_CHAT = 7, 5
CREDENTIAL_SCRIPT = "ops-tools/python/archive_upload.py"
_CHURN_DOCUMENTS = 60
#: Where restricted records stand in a numbering that the ones to be changed begin.
_RESTRICTED_TURN = 20
_GROUPS = (("ops",), ("safety",), ("management", "ops"))


def place_incidents(facility: Facility, bank: Bank, planted: Planted, incidents: list[Incident]) -> None:
    """Write the incidents into their sources. Every fifth has no chat, every seventh cost no beam time."""
    for turn, incident in enumerate(incidents, start=1):
        incident.procedure = Library.content_id(Library.procedure_number(incident.device.kind))
        teller = Teller(facility, bank, incident)
        slot = planted.request_slots.take(incident.start)
        planted.add_entry(teller.log(planted.minutes, FIRST_REQUEST + slot))
        planted.requests[slot] = teller.request(FIRST_REQUEST + slot)
        if turn % _NO_CHAT:
            slot = planted.thread_slots.take(incident.start)
            planted.threads[slot] = teller.chat(slot)
        if turn % _NO_DOWNTIME:
            slot = planted.outage_slots.take(incident.start)
            planted.outages[slot] = teller.outage(planted.outage_ids[slot])
        planted.add_entry(teller.recovered(planted.minutes))
        if turn % 2:
            planted.add_entry(teller.decoy(planted.minutes))


def place_extras(planted: Planted, planter: Planter, count: int) -> None:
    """Facts, late entries, duplicates, corrections, contradictions and credentials."""
    planter.facts(1 if count <= 3 else 2 if count <= 10 else 3)
    planter.late_entries(count)
    planter.duplicate_entries(count)
    planter.corrected(count)
    planter.logged_credentials()
    for request in planter.contradicted(count, _requests(planted, planter)):
        planted.requests[request.number - FIRST_REQUEST] = request
    minute = planter.rng.randrange(planted.thread_slots.count * 60)
    slot = planted.thread_slots.take(minute)
    planted.threads[slot] = planter.chat_credential("controls", slot, minute)
    planted.pages += [concept_page(planter.facility, planter.bank, number) for number in range(len(table("concepts")))]
    planted.pages.append(planter.page_credential())
    planted.scripts.append((CREDENTIAL_SCRIPT, planter.code_credential(f"CODE:{CREDENTIAL_SCRIPT}")))
    for entry in planter.made.entries:
        planted.add_entry(entry)


def _requests(planted: Planted, planter: Planter) -> Iterator[tuple[int, int]]:
    while True:
        minute = planter.rng.randrange(1000, 1_000_000)
        yield FIRST_REQUEST + planted.request_slots.take(minute), minute


def place_churn(facility: Facility, bank: Bank, planted: Planted, devices: list[Device]) -> None:
    """The records that days to come will change, as many of each source as one day takes."""
    maker = Maker(facility, bank, facility.rng("churn", bank.side), devices)
    for source, turns in DAILY.items():
        for turn in range(1, len(turns) + 1):
            planted.churn.append(_PLACE[source](planted, maker, turn))


def place_restricted(facility: Facility, bank: Bank, planted: Planted, devices: list[Device]) -> None:
    """One record for some groups only in each source whose items carry labels."""
    maker = Maker(facility, bank, facility.rng("restricted", bank.side), devices)
    for turn, source in enumerate(("bely", "work_requests", "downtime", "wiki", "icms")):
        labels = _GROUPS[turn % len(_GROUPS)]
        made = _PLACE[source](planted, maker, _RESTRICTED_TURN, labels)
        planted.restricted.append(Restricted(made.key, labels, made.phrase))


def _bely(planted: Planted, maker: Maker, turn: int, access: tuple[str, ...] = PUBLIC) -> Churn:
    minute = planted.minutes.take(maker.minute())
    phrase, entry = maker.entry(minute)
    page = LogDocument(Shift(minute // SHIFT_MINUTES), [entry], access, serial=turn)
    planted.special_entries.append(page)
    return Churn(entry.key, "bely", bely.file_name(page.shift), str(entry.id), phrase)


def _work_requests(planted: Planted, maker: Maker, turn: int, access: tuple[str, ...] = PUBLIC) -> Churn:
    minute = maker.minute()
    slot = planted.request_slots.take(minute)
    phrase, request = maker.request(FIRST_REQUEST + slot, minute)
    request.access = access
    planted.requests[slot] = request
    return Churn(request.key, "work_requests", work_requests.file_name(request), str(request.number), phrase)


def _downtime(planted: Planted, maker: Maker, turn: int, access: tuple[str, ...] = PUBLIC) -> Churn:
    minute = maker.minute()
    slot = planted.outage_slots.take(minute)
    phrase, outage = maker.outage(planted.outage_ids[slot], minute)
    outage.access = access
    planted.outages[slot] = outage
    return Churn(outage.key, "downtime", downtime.file_name(outage), outage.id, phrase)


def _wiki(planted: Planted, maker: Maker, turn: int, access: tuple[str, ...] = PUBLIC) -> Churn:
    phrase, page = maker.document(f"controls/Stickers_{turn:02d}", maker.minute(), "md")
    page.access = access
    planted.pages.append(page)
    return Churn(f"WIKI:{page.id}", "wiki", wiki.file_name(page), page.id, phrase)


def _icms(planted: Planted, maker: Maker, turn: int, access: tuple[str, ...] = PUBLIC) -> Churn:
    form = ("md", "html", "txt")[turn % 3]
    phrase, document = maker.document(Library.content_id(_CHURN_DOCUMENTS + turn), maker.minute(), form, "inventory")
    document.access = access
    planted.documents.append(document)
    name = f"{icms.DOCUMENTS}/{icms.file_name(document, document.revision)}"
    return Churn(document.key, "icms", name, document.id, phrase)


def _teams(planted: Planted, maker: Maker, turn: int, access: tuple[str, ...] = PUBLIC) -> Churn:
    minute = maker.minute()
    slot = planted.thread_slots.take(minute)
    phrase, thread = maker.thread(slot, minute)
    planted.threads[slot] = thread
    return Churn(thread.key, "teams", teams.file_name(thread), f"{CHAT_CHANNEL}/{thread.id}", phrase)


def _code(planted: Planted, maker: Maker, turn: int, access: tuple[str, ...] = PUBLIC) -> Churn:
    phrase, text = maker.script()
    name = f"{SCRIPTS}/where_{turn:02d}.py"
    planted.scripts.append((name, text))
    return Churn(f"CODE:{name}", "code", f"code/{name}", name, phrase)


def _epics(planted: Planted, maker: Maker, turn: int, access: tuple[str, ...] = PUBLIC) -> Churn:
    phrase, variable = maker.variable(turn)
    planted.stand.append(variable)
    return Churn(variable.key, "epics", epics.file_name(variable), variable.name, phrase)


def _sdds(planted: Planted, maker: Maker, turn: int, access: tuple[str, ...] = PUBLIC) -> Churn:
    name = f"{NOTES}/stand_notes_{turn:02d}.md"
    phrase, text = maker.manual(f"Stand notes {turn}")
    planted.notes.append((name, text))
    return Churn(f"SDDS:{name}", "sdds_docs", f"sdds_docs/{name}", name, phrase)


_PLACE = {
    "bely": _bely,
    "work_requests": _work_requests,
    "downtime": _downtime,
    "wiki": _wiki,
    "icms": _icms,
    "teams": _teams,
    "code": _code,
    "epics": _epics,
    "sdds_docs": _sdds,
}
