"""The same plain documents for every system, in three states: as they come, with 1 % edited, with 1 % of them gone.

A document is an id and a Markdown text. Those that are edited hold a word that stands nowhere else, which the edit
replaces by another; those that are deleted hold one too, and the first of them have a twin with the very same text
under another id, which stays: a system that knows documents by their text alone trips over these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.ledger import REPOSITORY

#: Documents by id: one state of a set.
Texts = dict[str, str]
SHARED = REPOSITORY.parent / "shared" / "data"
REPORTS = SHARED / "downtime" / "nrc"
SHARE = 0.01
PROBES = 20
TWINS = 2
QUESTIONS = 100
_TAG = re.compile(r"<br\s*/?>|</p>", re.IGNORECASE)
_MARKUP = re.compile(r"<[^>]+>|&nbsp;")


def make(folder: Path, texts: Sequence[str], questions: Sequence[str] = ()) -> None:
    """Write a set: its states `cold`, `edit` and `delete`, what to look for after each, and questions."""
    cold = {f"d{number:06d}": text for number, text in enumerate(texts)}
    edited = _evenly(list(cold), 0.5)
    deleted = [name for name in _evenly(list(cold), 0.0) if name not in edited]
    for name in (*edited, *deleted):
        cold[name] = f"{cold[name].rstrip()}\n\nBench reference {word(name, 'a')}.\n"
    twins = {f"twin-{name}": cold[name] for name in deleted[:TWINS]}
    cold |= twins
    after_edit = dict(cold)
    for name in edited:
        after_edit[name] = cold[name].replace(word(name, "a"), word(name, "b")) + "It was looked at again.\n"
    after_delete = {name: text for name, text in after_edit.items() if name not in deleted}
    some = edited[:PROBES]
    new = [[name, word(name, "b")] for name in some]
    old = [[name, word(name, "a")] for name in some]
    gone = [[name, word(name, "a")] for name in deleted[:PROBES]]
    probes = {
        "edit": {"new": new, "old": old, "deleted": [], "twins": []},
        "delete": {"new": new, "old": old, "deleted": gone, "twins": [[name, word(name[5:], "a")] for name in twins]},
    }
    asked = list(questions)[:QUESTIONS] or [_question(text) for text in _evenly(list(texts), 0.3, QUESTIONS)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("cold", cold), ("edit", after_edit), ("delete", after_delete), ("probes", probes)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "questions.json").write_text(json.dumps(asked))


def read(folder: Path, state: str) -> Texts:
    return dict(json.loads((folder / f"{state}.json").read_text()))


def lay(folder: Path, texts: Texts) -> None:
    """Make a folder hold exactly these documents, `<id>.md` each; files that are right already are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.md"):
        if path.stem not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / f"{name}.md"
        data = text.encode("utf-8")
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)


def word(name: str, which: str) -> str:
    """A word of letters that no corpus has, for one document."""
    digits = "".join("bcdfghjklm"[int(digit)] for digit in name if digit.isdigit())
    return f"zqx{digits}{which}"


def demo_texts(config: Path) -> list[str]:
    """Title and text of every record of a synced demo facility, in the order of their keys."""
    from aps_rag_pipeline.records import decode_record
    from aps_rag_pipeline.settings import Settings
    from aps_rag_pipeline.stores.catalog import unpack
    from aps_rag_pipeline.sync.pipeline import open_workspace

    with open_workspace(Settings.load(config)) as workspace:
        rows = workspace.catalog.connection.execute("select body from records where removed = 0 order by key")
        records = (decode_record(unpack(row["body"])) for row in rows)
        return ["\n\n".join([f"# {one.title}", *(part.text for part in one.parts)]) + "\n" for one in records]


def reports(most: int = 2000) -> list[str]:
    """Real event reports, title and abstract, where the sample data lies beside the checkout; else none."""
    return [text for text, _ in zip(_report_texts(), range(most), strict=False)]


def _report_texts() -> Iterator[str]:
    from python_calamine import CalamineWorkbook

    for path in sorted(REPORTS.glob("LERSearchResults*.xlsx")):
        rows = CalamineWorkbook.from_path(str(path)).get_sheet_by_index(0).to_python()
        for number, plant, day, _, _, told, *_ in rows[1:]:
            if isinstance(told, str) and len(told) > 200:
                yield f"# LER {number}, {plant}, {day}\n\n{_MARKUP.sub(' ', _TAG.sub(chr(10), told)).strip()}\n"


def _evenly(items: list[str], phase: float, most: int = 0) -> list[str]:
    wanted = min(most or max(round(len(items) * SHARE), 1), len(items))
    return [items[int((index + phase) * len(items) / wanted)] for index in range(wanted)]


def _question(text: str) -> str:
    """A dozen words from the middle of a text."""
    words = text.split()
    start = max(len(words) // 2 - 6, 0)
    return " ".join(words[start : start + 12])
