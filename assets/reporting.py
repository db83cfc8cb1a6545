"""How a stage's report looks in the UI: the same names everywhere, so that Dagster plots them over time."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

import dagster as dg


def stage_result(context: dg.AssetExecutionContext, report: Any, **more: Any) -> dg.MaterializeResult:
    """A stage's counts as metadata, its changeset as data version, its notices in the log."""
    for notice in report.notices:
        context.log.warning(notice)
    counts = {name: int(count) for name, count in sorted(report.counts.items())}
    context.log.info(f"{report.stage}: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    metadata: dict[str, Any] = {"changeset": report.changeset, "stage_version": report.version, **counts}
    if report.notices:
        metadata["notices"] = dg.MetadataValue.md("\n".join(f"- {notice}" for notice in report.notices))
    return dg.MaterializeResult(
        metadata={**metadata, **more}, data_version=dg.DataVersion(f"{report.version}#{report.changeset}")
    )


def table(rows: Iterable[Mapping[str, str | int | float | None]]) -> dg.TableMetadataValue | str:
    records = [dg.TableRecord({k: "" if v is None else v for k, v in row.items()}) for row in rows]
    return dg.MetadataValue.table(records) if records else "none"


def bar_chart(title: str, values: Sequence[tuple[str, float]]) -> dg.MarkdownMetadataValue:
    """A small horizontal bar chart, drawn as SVG inside Markdown."""
    widest = max((value for _, value in values), default=0) or 1
    height = 26 + 20 * len(values)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="520" height="{height}" font-family="sans-serif" ',
        f'font-size="12"><rect width="520" height="{height}" fill="#fff"/>',
        f'<text x="8" y="16" font-weight="bold">{escape(title)}</text>',
    ]
    for index, (name, value) in enumerate(values):
        y = 26 + 20 * index
        width = max(1, round(280 * value / widest))
        lines.append(
            f'<text x="140" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="148" y="{y}" width="{width}" height="14" fill="#3b6ea5"/>'
            f'<text x="{154 + width}" y="{y + 12}">{value:,.0f}</text>'
        )
    svg = "".join([*lines, "</svg>"])
    return dg.MetadataValue.md(f"![{title}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})")
