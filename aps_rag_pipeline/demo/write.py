"""Writing the demo: the plan, then source after source, then the truth."""

from __future__ import annotations

import shutil
from itertools import chain
from pathlib import Path

from aps_rag_pipeline.demo import plan as planning
from aps_rag_pipeline.demo import planting, settings_file
from aps_rag_pipeline.demo.facility import NAME
from aps_rag_pipeline.demo.plan import Plan
from aps_rag_pipeline.demo.truth import FILE, Screenshot, Summary, Truth, save_truth
from aps_rag_pipeline.demo.writers import (
    bely,
    code,
    downtime,
    epics,
    icms,
    screens,
    sdds_docs,
    teams,
    wiki,
    work_requests,
)

FEEDS = "feeds"
SETTINGS = "facility.yaml"
#: Screens that are drawn at most: a picture takes as long as fifty log entries.
_PICTURES = 200


def write(out: Path, seed: int = 7, records: int = 3000, held_out: bool = False) -> Summary:
    """Write a demo facility into `out`, replacing one that lies there (its `home` is left alone).

    Equal arguments give equal files. `held_out` draws every sentence and every question from phrases that the default
    demo never shows.

    Raises:
        FileExistsError: `out` holds something that is no demo facility.
        ValueError: too few records for what is planted.
    """
    plan = planning.make(seed, records, held_out)
    _clear(out)
    (out / SETTINGS).write_text(settings_file.text(), encoding="utf-8")
    feeds = out / FEEDS
    feeds.mkdir(parents=True)
    truth = Truth(seed, records, held_out, {})
    pictures = draw_all(feeds, plan, truth)
    facility, bank, counts = plan.facility, plan.bank, plan.counts
    scripts = plan.planted.scripts
    code_files = chain(scripts, code.files(facility, bank, plan.routine, counts["code"] - len(scripts)))
    truth.counts = {
        "bely": bely.write(feeds, facility, bank, plan.log_documents()),
        "icms": icms.write(feeds, plan.all_documents()) + icms.write_papers(feeds, plan.all_papers()),
        "work_requests": work_requests.write(feeds, plan.all_requests()),
        "teams": teams.write(feeds, plan.all_threads(), pictures),
        "downtime": downtime.write(feeds, plan.all_outages()),
        "sdds_docs": sdds_docs.write(feeds, facility, bank, plan.routine, plan.planted.notes, counts["sdds_docs"]),
        "code": code.write(feeds, code_files),
        "wiki": wiki.write(feeds, plan.all_pages()),
        "epics": epics.write(feeds, plan.variables()),
    }
    planting.tell(plan, truth)
    save_truth(truth, out)
    return Summary(str(out), seed, sum(truth.counts.values()), truth.counts, len(truth.incidents), len(truth.questions))


def draw_all(feeds: Path, plan: Plan, truth: Truth) -> dict[str, bytes]:
    """Draw the screen of each incident that was posted, put every fourth into the log too, and note what it says."""
    pictures: dict[str, bytes] = {}
    for incident in plan.incidents[:_PICTURES]:
        rows = screens.lines(plan.facility.rng("screen", incident.id), incident)
        name, text = f"{incident.id.lower()}.png", screens.text_lines(incident, rows)
        if incident.thread:
            pictures[name] = screens.draw(incident, rows)
            incident.thread.messages[0].image = name
            place = teams.picture_name(incident.thread, 0)
            truth.screenshots.append(Screenshot(incident.thread.key, f"{FEEDS}/{place}", text))
            if incident.entry and len(pictures) % 4 == 0:
                incident.entry.image = name
                bely.write_attachment(feeds, name, pictures[name])
                truth.screenshots.append(Screenshot(incident.entry.key, f"{FEEDS}/bely/attachments/{name}", text))
    return pictures


def _clear(out: Path) -> None:
    """Empty the place of a demo. The settings come first and the truth last, so that a broken-off demo is known."""
    settings = out / SETTINGS
    ours = settings.is_file() and NAME in settings.read_text(encoding="utf-8", errors="replace")
    if out.exists() and any(out.iterdir()) and not ours:
        raise FileExistsError(f"{out} is not empty and holds no demo facility; name another folder")
    (out / FILE).unlink(missing_ok=True)
    shutil.rmtree(out / FEEDS, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
