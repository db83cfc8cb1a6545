"""From the plan to the truth: what was planted, said in citation keys."""

from __future__ import annotations

from aps_rag_pipeline.demo.facility import at
from aps_rag_pipeline.demo.incidents import Incident
from aps_rag_pipeline.demo.plan import Plan
from aps_rag_pipeline.demo.truth import Identifier, IncidentTruth, Truth


def tell(plan: Plan, truth: Truth) -> None:
    """Fill the truth with what the plan has planted."""
    extras = plan.extras
    truth.late, truth.duplicates, truth.corrections = extras.late, extras.duplicates, extras.corrections
    truth.contradictions, truth.credentials = extras.contradictions, extras.credentials
    truth.churn = plan.planted.churn
    for incident in plan.incidents:
        told = incident_truth(incident)
        truth.incidents.append(told)
        truth.identifiers.extend(incident_identifiers(incident, told))


def incident_truth(incident: Incident) -> IncidentTruth:
    made = {
        "log": incident.entry,
        "recovery": incident.recovery,
        "decoy": incident.decoy,
        "work_request": incident.request,
        "downtime": incident.outage,
        "chat": incident.thread,
        "pv": incident.variable,
    }
    procedure = f"ICMS:documents/{incident.procedure}"
    return IncidentTruth(
        incident.id, incident.mode["id"], incident.device.name, incident.system, incident.variable.name,
        incident.value, at(incident.start).isoformat(), at(incident.end).isoformat(), float(incident.hours),
        incident.symptom, incident.cause, incident.part, incident.fix, incident.serial,
        {role: item.key for role, item in made.items() if item is not None} | {"procedure": procedure},
    )  # fmt: skip


def incident_identifiers(incident: Incident, told: IncidentTruth) -> list[Identifier]:
    keys = told.keys
    found = [Identifier(key, "key", (key,), key) for key in keys.values()]
    about = tuple(keys.values())
    found.append(Identifier(incident.device.name, "device", about))
    shown_by = tuple(keys[role] for role in ("pv", "log", "downtime") if role in keys)
    found.append(Identifier(incident.variable.name, "pv", shown_by, keys["pv"]))
    if incident.request:
        number = str(incident.request.number)
        found.append(Identifier(f"WR {number}", "number", about, keys["work_request"]))
    if incident.outage:
        found.append(Identifier(incident.outage.id, "number", (keys["downtime"],), keys["downtime"]))
    return found
