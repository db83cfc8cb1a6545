"""PPTX: one section a slide, its shapes from top to bottom, then the speaker's notes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aps_rag_pipeline.content.assembly import Assembly, Partition, Picture
from aps_rag_pipeline.content.markup import pipe_table
from aps_rag_pipeline.content.packages import core_properties, open_package
from aps_rag_pipeline.content.text import clean
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import Blobs, UnreadableError

if TYPE_CHECKING:
    from pptx.slide import Slide

_A_TEXT = "{http://schemas.openxmlformats.org/drawingml/2006/main}t"
_A_PARAGRAPH = "{http://schemas.openxmlformats.org/drawingml/2006/main}p"
_A_BLIP = "{http://schemas.openxmlformats.org/drawingml/2006/main}blip"
_C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_EMBED = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}embed"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}relIds"
_DIAGRAM_DATA = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}dm"
_MAX_DEPTH = 20
_MAX_POINTS = 2000


def partition_slides(data: bytes, limits: Limits, blobs: Blobs) -> Partition:
    """Text of a slide is one part with `locator` "slide n"; tables, charts and notes are parts of their own.

    `unstructured` is not asked: it drops shapes that begin left of or above the slide, charts, diagrams and pictures,
    and gives the notes before the slide.

    Raises:
        UnreadableError: damaged or beyond the limits.
    """
    from pptx import Presentation

    presentation = Presentation(io.BytesIO(open_package(data, limits)))
    found = Partition()
    core_properties(presentation.core_properties, found)
    assembly = Assembly(blobs)
    slides = list(presentation.slides)
    if len(slides) > limits.max_pages:
        raise UnreadableError(
            f"{len(slides)} slides, more than limits.max_pages ({limits.max_pages})",
            remedy="raise the limit or split it",
        )
    links: dict[str, Link] = {}
    for number, slide in enumerate(slides, 1):
        _slide(slide, number, assembly, links)
        found.title = found.title or _title(slide)
    found.parts, found.attachments = assembly.finish()
    found.links = list(links.values())
    found.fields["slides"] = len(slides)
    return found


def _title(slide: Slide) -> str:
    shape = slide.shapes.title
    return " ".join(clean(shape.text_frame.text).split()) if shape is not None else ""


def _slide(slide: Slide, number: int, assembly: Assembly, links: dict[str, Link]) -> None:
    assembly.place(f"slide {number}", _title(slide))
    title = slide.shapes.title
    for shape in _ordered(slide.shapes, 0):
        if title is None or shape.shape_id != title.shape_id:
            _shape(shape, assembly, links)
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) is not None and frame.text.strip():
        assembly.prose(f"Notes: {frame.text.strip()}")


def _ordered(shapes: Any, depth: int) -> Iterator[Any]:
    """Shapes by rows from the top, groups opened. A placeholder without a position of its own has its layout's."""
    for shape in sorted(shapes, key=lambda shape: (shape.top or 0, shape.left or 0)):
        if hasattr(shape, "shapes") and depth < _MAX_DEPTH:
            yield from _ordered(shape.shapes, depth + 1)
        else:
            yield shape


def _shape(shape: Any, assembly: Assembly, links: dict[str, Link]) -> None:
    if getattr(shape, "has_table", False):
        assembly.table(pipe_table(_grid(shape.table)))
    elif getattr(shape, "has_chart", False):
        _chart(shape.chart.part._element, assembly)
    elif getattr(shape, "has_text_frame", False):
        assembly.prose("\n".join(_lines(shape.text_frame, links)))
    else:
        assembly.prose("\n".join(_diagram(shape)))
    for blip in shape._element.iter(_A_BLIP):
        _picture(shape, blip.get(_EMBED, ""), assembly)
    if alt := _alternative(shape):
        assembly.prose(alt)


def _lines(frame: Any, links: dict[str, Link]) -> Iterator[str]:
    for paragraph in frame.paragraphs:
        text = clean(paragraph.text.replace("\v", "\n")).strip()
        if text:
            level = paragraph.level or 0
            yield "  " * level + ("- " if level else "") + text
        for run in paragraph.runs:
            address = run.hyperlink.address
            if address and "://" in address:
                links.setdefault(address, Link("url", address, clean(run.text).strip()))


def _grid(table: Any) -> list[list[str]]:
    """Cell texts. A cell merged downwards is said in each row, one merged across in its first column."""
    grid: list[list[str]] = []
    for row in table.rows:
        above = grid[-1] if grid else []
        grid.append([above[at] if cell._tc.vMerge and above else _cell(cell) for at, cell in enumerate(row.cells)])
    return grid


def _cell(cell: Any) -> str:
    return clean(cell.text.replace("\v", "\n")).strip() if not cell.is_spanned else ""


def _chart(space: Any, assembly: Assembly) -> None:
    """The numbers behind a chart of any type: categories down, series across."""
    title = space.find(f"{_C}chart/{_C}title")
    words = "" if title is None else "".join(piece.text or "" for piece in title.iter(_A_TEXT))
    labels: dict[int, str] = {}
    series: list[tuple[str, dict[int, str]]] = []
    for one in space.iter(_C + "ser"):
        name = " ".join(value.text or "" for value in one.iterfind(f"{_C}tx//{_C}v"))
        labels = labels | _points(one, "cat", "xVal")
        series.append((name, _points(one, "val", "yVal")))
    places = sorted({index for _, values in series for index in values} | labels.keys())[:_MAX_POINTS]
    rows = [["", *(name for name, _ in series)]]
    rows.extend(
        [labels.get(index, str(index + 1)), *(values.get(index, "") for _, values in series)] for index in places
    )
    if places:
        assembly.table(pipe_table(rows), clean(words))


def _points(series: Any, *names: str) -> dict[int, str]:
    found: dict[int, list[str]] = {}
    for name in names:
        for point in series.iterfind(f"{_C}{name}//{_C}pt"):
            index, value = point.get("idx", ""), point.find(_C + "v")
            if index.isdigit() and value is not None:
                found.setdefault(int(index), []).append(clean(value.text or ""))
    # Labels of several levels come innermost first.
    return {index: " ".join(reversed(texts)) for index, texts in found.items()}


def _diagram(shape: Any) -> Iterator[str]:
    """The words of a SmartArt diagram, which lie in a part of their own."""
    from pptx.oxml import parse_xml

    for reference in shape._element.iter(_DIAGRAM):
        part = shape.part.rels.get(reference.get(_DIAGRAM_DATA, ""))
        if part is None or part.is_external:
            continue
        for paragraph in parse_xml(part.target_part.blob).iter(_A_PARAGRAPH):
            text = "".join(piece.text or "" for piece in paragraph.iter(_A_TEXT)).strip()
            if text:
                yield text


def _picture(shape: Any, relation: str, assembly: Assembly) -> None:
    found = shape.part.rels.get(relation)
    if found is not None and not found.is_external:
        part = found.target_part
        assembly.picture(Picture(str(part.partname).rsplit("/", 1)[-1], part.blob, part.content_type))


def _alternative(shape: Any) -> str:
    """A picture's description, where somebody wrote one (programs put file names there)."""
    if not hasattr(shape, "image"):
        return ""
    description: str = shape._element.nvPicPr.cNvPr.get("descr", "")
    return description.strip() if " " in description.strip() else ""
