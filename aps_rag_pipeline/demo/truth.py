"""The planted truth: what `truth.json` holds, so that a test can compare exactly and a score can be taken."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

FILE = "truth.json"
QuestionType = Literal["identifier", "fact", "statistics", "troubleshooting", "multi_hop", "concept", "time"]
QUESTION_TYPES: tuple[QuestionType, ...] = (
    "identifier", "fact", "statistics", "troubleshooting", "multi_hop", "concept", "time",
)  # fmt: skip


class Identifier(msgspec.Struct, frozen=True):
    """A token that must match exactly. `own` is the record that it names, where it names one; `gold` mention it."""

    text: str
    kind: Literal["key", "pv", "number", "device", "content_id"]
    gold: tuple[str, ...]
    own: str | None = None


class IncidentTruth(msgspec.Struct, frozen=True):
    """A causal chain over several sources. `keys` maps a role (log, chat, work_request ...) to a citation key."""

    id: str
    mode: str
    device: str
    system: str
    pv: str
    value: str
    started: str
    ended: str
    hours_lost: float
    symptom: str
    cause: str
    part: str
    fix: str
    serial: str
    keys: dict[str, str]


class Duplicate(msgspec.Struct, frozen=True):
    keys: tuple[str, str]
    text: str


class Late(msgspec.Struct, frozen=True):
    """An entry written days after what it tells. Times are ISO 8601 UTC."""

    key: str
    happened: str
    entered: str


class Correction(msgspec.Struct, frozen=True):
    key: str
    corrects: str
    wrong: str
    right: str


class Contradiction(msgspec.Struct, frozen=True):
    keys: tuple[str, str]
    about: str
    values: tuple[str, str]


class Credential(msgspec.Struct, frozen=True):
    key: str
    secret: str
    kind: str


class Screenshot(msgspec.Struct, frozen=True):
    key: str
    file: str
    text_lines: tuple[str, ...]


class Restricted(msgspec.Struct, frozen=True):
    """A record for some groups only, and words that stand nowhere else: a reader without a group finds neither."""

    key: str
    access: tuple[str, ...]
    phrase: str


class Question(msgspec.Struct, frozen=True):
    """`gold`: any of these keys is a right hit. `nuggets`: strings that a right answer holds (letter case apart)."""

    id: str
    type: QuestionType
    text: str
    gold: tuple[str, ...] = ()
    nuggets: tuple[str, ...] = ()
    answerable: bool = True


class Churn(msgspec.Struct, frozen=True):
    """A record that `advance` may edit, relabel or delete: where it lies and the words it alone holds."""

    key: str
    source: str
    file: str
    id: str
    phrase: str
    access: tuple[str, ...] = ("public",)


class Added(msgspec.Struct, frozen=True):
    key: str
    text: str


class Edited(msgspec.Struct, frozen=True):
    key: str
    old_text: str
    new_text: str


class Relabelled(msgspec.Struct, frozen=True):
    key: str
    old: tuple[str, ...]
    new: tuple[str, ...]


class Deleted(msgspec.Struct, frozen=True):
    key: str
    old_text: str


class DayReport(msgspec.Struct, frozen=True):
    """What one call of `advance` did. Everything not named here is unchanged."""

    day: int
    date: str
    added: tuple[Added, ...]
    edited: tuple[Edited, ...]
    relabelled: tuple[Relabelled, ...]
    deleted: tuple[Deleted, ...]


class Truth(msgspec.Struct):
    seed: int
    records: int
    held_out: bool
    counts: dict[str, int]
    identifiers: list[Identifier] = []
    incidents: list[IncidentTruth] = []
    duplicates: list[Duplicate] = []
    late: list[Late] = []
    corrections: list[Correction] = []
    contradictions: list[Contradiction] = []
    credentials: list[Credential] = []
    screenshots: list[Screenshot] = []
    restricted: list[Restricted] = []
    questions: list[Question] = []
    churn: list[Churn] = []
    days: list[DayReport] = []


class Summary(msgspec.Struct, frozen=True):
    """What `write` wrote."""

    out: str
    seed: int
    records: int
    counts: dict[str, int]
    incidents: int
    questions: int


def load_truth(out: Path) -> Truth:
    """The truth of the demo in `out`, as of its last `advance`.

    Raises:
        FileNotFoundError: no demo lies there.
    """
    return msgspec.json.decode((out / FILE).read_bytes(), type=Truth)


def save_truth(truth: Truth, out: Path) -> None:
    data = msgspec.json.format(msgspec.json.encode(truth, order="deterministic"), indent=1)
    (out / FILE).write_bytes(data + b"\n")
