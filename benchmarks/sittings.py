"""Which of a report's figures were taken when: a run that is gone on with keeps the figures of its earlier sittings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.ledger import Sitting

#: What stands behind a step that was broken off in one sitting and gone on with in another.
GONE_ON = "†"


def lines(sittings: Sequence[Sitting]) -> list[str]:
    """When the run was begun and gone on with, as Markdown lines; how its tables tell of it, where it was."""
    told = [
        f"{number} begun {one.begun.replace('T', ' ').replace('+00:00', ' UTC')} at load {one.load:.2f}"
        for number, one in enumerate(sittings, start=1)
    ]
    made = [f"- sittings: {'; '.join(told)}"] if told else []
    if len(told) > 1:
        made.append(
            "- **The run was resumed: the column *sitting* tells where each row's figures come from.** "
            f"{GONE_ON} marks a step that was itself broken off and gone on with: the seconds of all its attempts are "
            "counted, CPU, memory and the seconds by stage are those of the last."
        )
    return made


def of(*found: dict[str, Any]) -> str:
    """The sittings in which some steps were done; marked where one of them was itself gone on with."""
    numbers = sorted({one["sitting"] for one in found if one.get("sitting")})
    mark = f" {GONE_ON}" if any(one.get("earlier_s") for one in found) else ""
    return (", ".join(map(str, numbers)) or "–") + mark
