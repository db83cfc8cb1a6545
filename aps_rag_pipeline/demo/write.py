"""Writing the demo: the plan, then source after source, then the truth."""

from __future__ import annotations

import shutil
from pathlib import Path

from aps_rag_pipeline.demo import plan as planning
from aps_rag_pipeline.demo import planting, settings_file
from aps_rag_pipeline.demo.truth import FILE, Summary, Truth, save_truth
from aps_rag_pipeline.demo.writers import bely, downtime, epics, work_requests

FEEDS = "feeds"
SETTINGS = "facility.yaml"


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
    feeds = out / FEEDS
    feeds.mkdir(parents=True)
    truth = Truth(seed, records, held_out, {})
    truth.counts["bely"] = bely.write(feeds, plan.facility, plan.bank, plan.shifts())
    truth.counts["work_requests"] = work_requests.write(feeds, plan.all_requests())
    truth.counts["downtime"] = downtime.write(feeds, plan.all_outages())
    truth.counts["epics"] = epics.write(feeds, plan.variables())
    planting.tell(plan, truth)
    (out / SETTINGS).write_text(settings_file.text(), encoding="utf-8")
    save_truth(truth, out)
    return Summary(str(out), seed, sum(truth.counts.values()), truth.counts, len(truth.incidents), len(truth.questions))


def _clear(out: Path) -> None:
    if out.exists() and any(out.iterdir()) and not (out / FILE).is_file():
        raise FileExistsError(f"{out} is not empty and holds no demo facility; name another folder")
    shutil.rmtree(out / FEEDS, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
