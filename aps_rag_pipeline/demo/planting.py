"""From the plan to the truth: what was planted, said in citation keys."""

from __future__ import annotations

from collections.abc import Iterator

from aps_rag_pipeline.demo import questions
from aps_rag_pipeline.demo.facility import KINDS, at
from aps_rag_pipeline.demo.incidents import Incident
from aps_rag_pipeline.demo.items import Variable
from aps_rag_pipeline.demo.library import Library
from aps_rag_pipeline.demo.plan import Plan
from aps_rag_pipeline.demo.truth import Identifier, IncidentTruth, Truth


def tell(plan: Plan, truth: Truth) -> None:
    """Fill the truth with what the plan has planted."""
    extras = plan.extras
    truth.late, truth.duplicates, truth.corrections = extras.late, extras.duplicates, extras.corrections
    truth.contradictions, truth.credentials = extras.contradictions, extras.credentials
    truth.churn, truth.restricted = plan.planted.churn, plan.planted.restricted
    signals: dict[str, list[str]] = {}
    for variable in plan.variables():
        signals.setdefault(variable.device.name, []).append(variable.key)
    cited: dict[str, list[str]] = {}
    for incident in plan.incidents:
        told = _incident(incident)
        truth.incidents.append(told)
        truth.identifiers.extend(_incident_identifiers(incident, told, signals[incident.device.name]))
        cited.setdefault(incident.procedure, []).append(told.keys["log"])
    truth.identifiers.extend(_document_identifiers(cited))
    truth.identifiers.extend(Identifier(entry.key, "key", (entry.key,), entry.key) for entry in extras.entries)
    truth.identifiers.extend(_signal_identifiers(plan.variables(), truth))
    truth.questions = questions.make(plan)


def _incident(incident: Incident) -> IncidentTruth:
    made = {
        "log": incident.entry,
        "recovery": incident.recovery,
        "decoy": incident.decoy,
        "work_request": incident.request,
        "downtime": incident.outage,
        "chat": incident.thread,
        "pv": incident.variable,
    }
    keys = {role: item.key for role, item in made.items() if item is not None}
    keys["procedure"] = f"ICMS:documents/{incident.procedure}"
    return IncidentTruth(
        incident.id, incident.mode["id"], incident.device.name, incident.system, incident.variable.name,
        incident.value, at(incident.start).isoformat(), at(incident.end).isoformat(), float(incident.hours),
        incident.symptom, incident.cause, incident.part, incident.fix, incident.serial, keys,
    )  # fmt: skip


def _incident_identifiers(incident: Incident, told: IncidentTruth, signals: list[str]) -> Iterator[Identifier]:
    about = {role: key for role, key in told.keys.items() if role != "procedure"}
    for key in about.values():
        yield Identifier(key, "key", (key,), key)
    yield Identifier(incident.device.name, "device", tuple(dict.fromkeys((*about.values(), *signals))))
    assert incident.request
    number = str(incident.request.number)
    said = "\n".join(message.html for message in incident.thread.messages) if incident.thread else ""
    shown = bool(incident.thread and incident.thread.messages[0].image)

    def naming(own: str, chatted: bool) -> tuple[str, ...]:
        roles = (own, "log", "downtime", *(("chat",) if chatted else ()))
        return tuple(about[role] for role in roles if role in about)

    signal = incident.variable.name
    yield Identifier(signal, "pv", naming("pv", shown or signal in said), about["pv"])
    yield Identifier(f"WRQ {number}", "number", naming("work_request", number in said), about["work_request"])
    if incident.outage:
        yield Identifier(incident.outage.id, "number", (about["downtime"],), about["downtime"])


def _document_identifiers(cited: dict[str, list[str]]) -> Iterator[Identifier]:
    for kind in KINDS:
        name = Library.content_id(Library.procedure_number(kind))
        key = f"ICMS:documents/{name}"
        yield Identifier(name, "content_id", (key, *cited.get(name, ())), key)


def _signal_identifiers(variables: list[Variable], truth: Truth) -> Iterator[Identifier]:
    """Some process variables of which no incident tells; others may mention them, but the record itself is known."""
    told = {incident.device for incident in truth.incidents}
    quiet = [v for v in variables if v.device.name not in told and not v.note]
    for variable in quiet[:: max(len(quiet) // 25, 1)]:
        yield Identifier(variable.name, "pv", (variable.key,), variable.key)
