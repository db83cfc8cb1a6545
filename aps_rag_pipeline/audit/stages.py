"""Stages that have not applied the newest changeset: a run died, or the settings name another model or cut."""

from __future__ import annotations

from aps_rag_pipeline.audit.findings import Findings
from aps_rag_pipeline.knowledge.structure import EXTRACTOR
from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.sql_models import load_models
from aps_rag_pipeline.sync import names, scrub
from aps_rag_pipeline.sync.marts import LAYERS, stage_name, version_of
from aps_rag_pipeline.sync.model import ConfiguredModel
from aps_rag_pipeline.sync.text import chunks_version, passages_version
from aps_rag_pipeline.sync.workspace import Workspace


def check_stages(workspace: Workspace, model: ConfiguredModel, findings: Findings) -> bool:
    """Whether every stage stands at the newest changeset, so that what it wrote can be compared."""
    catalog, fingerprint = workspace.catalog, model.description.fingerprint
    target, chunking = catalog.changeset(), workspace.settings.chunking
    wanted: dict[str, str | None] = {
        names.OCR: None,  # follows the machine's engine; its texts stay when it goes
        names.PASSAGES: passages_version(chunking),
        names.CHUNKS: chunks_version(chunking, model),
        names.EMBEDDINGS: fingerprint,
        names.DENSE: f"{names.DENSE_VERSION}:{fingerprint}",
        names.SPARSE: names.SPARSE_VERSION,
        names.GRAPH: EXTRACTOR,
    }
    wanted |= {stage_name(model): version_of(model) for model in load_models().values() if model.layer in LAYERS}
    found = {row["stage"]: row for row in catalog.rows("select * from stages")}
    whole = True
    for stage, version in wanted.items():
        row = found.get(stage)
        if row is None:
            problem = f"has never run; the newest changeset is {target}"
            findings.damage.unfinished = True
        elif version is not None and row["version"] != version:
            problem = f"ran as {row['version']}, the settings and this version now want {version}"
            findings.damage.outdated = True
        elif row["applied"] < target:
            problem = f"has applied changeset {row['applied']} of {target}"
            findings.damage.unfinished = True
        else:
            continue
        whole = False
        findings.add("behind", "stages", stage, problem)
    if scrub.wanted(catalog):
        findings.add("behind", "stages", "purge", "what was purged lingers in old files until a release is whole")
        findings.damage.unfinished = True
    return whole


def check_released(workspace: Workspace, newest: releases.Manifest | None, findings: Findings) -> bool:
    """Whether the newest release is of the newest changeset."""
    catalog, target = workspace.catalog, workspace.catalog.changeset()
    if newest is not None and (newest.changeset, newest.token) == (target, catalog.token()):
        return True
    said = "nothing is released" if newest is None else f"release {newest.number} is of changeset {newest.changeset}"
    findings.damage.unfinished = True
    findings.add("behind", "stages", names.RELEASE, f"{said}; the newest changeset is {target}")
    return False
