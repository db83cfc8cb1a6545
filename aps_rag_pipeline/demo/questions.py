"""Questions with their gold: about incidents, facts, figures, concepts and times, and some that have no answer."""

from __future__ import annotations

import random
from collections.abc import Iterator

from aps_rag_pipeline.demo.extras import spoken_day
from aps_rag_pipeline.demo.facility import SYSTEMS, at
from aps_rag_pipeline.demo.incidents import Incident
from aps_rag_pipeline.demo.library import folder_of, quarter_slots
from aps_rag_pipeline.demo.phrases import table
from aps_rag_pipeline.demo.plan import Plan
from aps_rag_pipeline.demo.truth import Question, QuestionType

#: Questions of one type, at most.
_MOST = 40
_GOLD_LIMIT = 60
Draft = tuple[str, tuple[str, ...], tuple[str, ...]]


def make(plan: Plan) -> list[Question]:
    """All questions of a plan, numbered within their type."""
    asker = _Asker(plan)
    drafts: dict[QuestionType, Iterator[Draft]] = {
        "identifier": asker.identifiers(),
        "statistics": asker.statistics(),
        "troubleshooting": asker.troubleshooting(),
        "multi_hop": asker.multi_hop(),
        "concept": asker.concepts(),
        "time": asker.times(),
    }
    found: list[Question] = []
    for kind, made in drafts.items():
        # Two incidents may lead to one question, about their common procedure.
        chosen = list({draft[0]: draft for draft in made}.values())
        if len(chosen) > _MOST:
            chosen = plan.facility.rng("questions", kind).sample(chosen, _MOST)
        found += [Question(f"{kind}-{i:03d}", kind, *draft) for i, draft in enumerate(chosen, start=1)]
    found += plan.extras.questions
    found += [
        Question(f"unanswerable-{i:03d}", kind, text, answerable=False)
        for i, (kind, text) in enumerate(asker.unanswerable(), start=1)
    ]
    return found


class _Asker:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng: random.Random = plan.facility.rng("ask", plan.bank.side)

    def say(self, name: str, slots: dict[str, object]) -> str:
        text = self.plan.bank.say(self.rng, self.plan.bank.phrases("questions", name), slots)
        return text[:1].upper() + text[1:]

    def about(self, name: str, incident: Incident) -> str:
        return self.say(name, {"plain": incident.plain})

    def identifiers(self) -> Iterator[Draft]:
        for incident in self.plan.incidents[:_MOST]:
            kinds: list[Draft] = []
            if incident.entry:
                kinds.append((incident.entry.key, (incident.entry.key,), (incident.part,)))
            if incident.request:
                name = f"WR {incident.request.number}"
                kinds.append((name, (incident.request.key,), (incident.part,)))
            if incident.outage:
                kinds.append((f"downtime {incident.outage.id}", (incident.outage.key,), (incident.part,)))
            kinds.append((incident.variable.name, (incident.variable.key,), (incident.variable.signal.words,)))
            procedure = f"ICMS:documents/{incident.procedure}"
            kinds.append((incident.procedure, (procedure,), (incident.device.kind.noun,)))
            text, gold, nuggets = self.rng.choice(kinds)
            yield self.say("identifier", {"text": text}), gold, nuggets

    def statistics(self) -> Iterator[Draft]:
        passing = {churn.key for churn in self.plan.planted.churn}
        for (year, number), systems in sorted(self.plan.downtime.items()):
            for system in SYSTEMS:
                tally = systems.get(system)
                if tally is None:
                    continue
                slots = {**quarter_slots(year, number), "system": system}
                gold = (
                    self.plan.report_keys[year, number],
                    *(key for key in tally.keys[:_GOLD_LIMIT] if key not in passing),
                )
                figures = {"stat_hours": f"{tally.hours:.1f}", "stat_count": str(tally.events),
                           "stat_longest": f"{tally.longest:.1f}"}  # fmt: skip
                name = self.rng.choice(list(figures))
                yield self.say(name, slots), gold, (figures[name],)

    def troubleshooting(self) -> Iterator[Draft]:
        for incident in self.plan.incidents:
            items = (incident.entry, incident.request, incident.outage, incident.thread)
            gold = tuple(item.key for item in items if item)
            yield self.about("cause", incident), gold, (incident.part,)
            cured = tuple(item.key for item in (incident.entry, incident.request, incident.thread) if item)
            yield self.about("cure", incident), cured, (incident.part,)

    def multi_hop(self) -> Iterator[Draft]:
        """Each needs a second record, or one that says another thing than the question names."""
        for turn, incident in enumerate(self.plan.incidents):
            assert incident.request
            assert incident.entry
            assert incident.recovery
            outage = (incident.outage.key,) if incident.outage else ()
            hops: tuple[Draft, ...] = (
                (self.about("hop_request", incident), (incident.request.key, incident.entry.key, *outage),
                 (str(incident.request.number),)),
                (self.about("hop_serial", incident), (incident.request.key,), (incident.serial,)),
                (self.about("hop_signal", incident), (incident.entry.key, incident.variable.key, *outage),
                 (incident.variable.name,)),
                (self.about("hop_procedure", incident),
                 (incident.entry.key, f"ICMS:documents/{incident.procedure}"), (incident.procedure,)),
                (self.about("hop_hours", incident), (incident.recovery.key, *outage), (incident.hours,)),
            )  # fmt: skip
            yield hops[turn % len(hops)]
            yield hops[(turn + 2) % len(hops)]

    def concepts(self) -> Iterator[Draft]:
        for concept in table("concepts"):
            key = f"WIKI:{folder_of(concept['system'])}/{concept['id']}"
            asked = zip(self.plan.bank.of(concept["ask"]), self.plan.bank.of(concept["nuggets"]), strict=True)
            for text, nugget in asked:
                yield text, (key,), (nugget,)

    def times(self) -> Iterator[Draft]:
        for turn, incident in enumerate(self.plan.incidents):
            day = spoken_day(incident.start)
            when = at(incident.start)
            slots: dict[str, object] = {
                "shift": incident.shift.name, "day": day, "system": incident.system, "month": f"{when:%B %Y}",
                "dom": _ordinal(when.day),
            }  # fmt: skip
            items = (incident.entry, incident.recovery, incident.request, incident.outage, incident.thread)
            gold = tuple(item.key for item in items if item)
            yield self.say("time_system" if turn % 4 == 3 else "time_shift", slots), gold, (incident.device.name,)

    def unanswerable(self) -> Iterator[tuple[QuestionType, str]]:
        """Devices, numbers and topics that do not exist, and facts that nobody wrote down."""
        for name in ("S43A:Q2", "S51B:S1", "RF7:KLY1", "L9:MOD2", "CRYO8:CP3", "ID44u", "S47:IP6", "WS9:PUMP1"):
            yield "troubleshooting", self.say("no_device", {"dev": name})
        for text in ("WR 91244", "WRQ 97310", "log 9911873", "BELY:9820417", "downtime 2021-0107", "DOWN:2022-0031",
                     "APS_1999412", "APS_1987003"):  # fmt: skip
            yield "identifier", self.say("no_number", {"text": text})
        phrases = self.plan.bank.phrases("questions", "no_fact")
        for turn, incident in enumerate(self.plan.incidents[:8]):
            yield "fact", phrases[turn % len(phrases)].format(dev=incident.device.name)
        for text in self.plan.bank.phrases("questions", "no_topic"):
            yield "concept", text


def _ordinal(day: int) -> str:
    ending = "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"
