"""Lists of Word files, in tables and outside: numbered as Word shows them."""

from __future__ import annotations

import io
from typing import Any

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from tests.test_office_round_trip import read, tables

OUTLINE = """<w:abstractNum {0} w:abstractNumId="90">
<w:lvl w:ilvl="0"><w:start w:val="3"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>
<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="{1}"/><w:lvlText w:val="%1.%2)"/></w:lvl>
</w:abstractNum>"""
LIST = """<w:num {0} w:numId="{1}"><w:abstractNumId w:val="90"/>{2}</w:num>"""
ANEW = """<w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride>"""


def document(kind: str = "lowerLetter") -> Any:
    """With an outline list, 91, and another use of it that begins anew, 92."""
    made = docx.Document()
    numbering = made.part.numbering_part.element
    numbering.insert(0, parse_xml(OUTLINE.format(nsdecls("w"), kind)))
    numbering.append(parse_xml(LIST.format(nsdecls("w"), 91, "")))
    numbering.append(parse_xml(LIST.format(nsdecls("w"), 92, ANEW)))
    return made


def item(paragraph: Any, number: int, level: int = 0) -> None:
    properties = paragraph._p.get_or_add_pPr().get_or_add_numPr()
    properties.get_or_add_numId().val = number
    properties.get_or_add_ilvl().val = level


def table_of(made: Any, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    target = io.BytesIO()
    made.save(target)
    (table,) = tables(read(target.getvalue(), "x.docx", tmp_path_factory))
    return table


def texts_of(made: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    target = io.BytesIO()
    made.save(target)
    return [part.text for part in read(target.getvalue(), "x.docx", tmp_path_factory).parts]


def test_steps_in_cells_keep_the_numbers_that_word_shows(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = document()
    item(made.add_paragraph("Read the permit"), 91)
    table = made.add_table(4, 2)
    steps = (("Close the valve", 91, 0), ("Vent", 91, 1), ("Lock", 91, 1), ("Tag", 91, 0), ("Sign", 92, 0))
    for row, texts in enumerate((("step", "who"), ("", "Kim"), ("", "Roe"), ("", "Poe"))):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    for row, chosen in ((1, steps[:3]), (2, steps[3:4]), (3, steps[4:])):
        cell = table.cell(row, 0)
        for index, (text, number, level) in enumerate(chosen):
            paragraph = cell.paragraphs[0] if index == 0 else cell.add_paragraph()
            paragraph.add_run(text)
            item(paragraph, number, level)
    assert table_of(made, tmp_path_factory) == [
        ["step", "who"],
        ["4. Close the valve 4.a) Vent 4.b) Lock", "Kim"],
        ["5. Tag", "Roe"],
        ["1. Sign", "Poe"],
    ]


@pytest.mark.parametrize("style", ["", "List Number"], ids=["own", "by style"])
def test_numbers_in_a_frame_are_said_once_and_go_on_behind_a_table(
    style: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = document()
    steps = [made.add_paragraph("Read the permit")]
    frame = made.add_table(1, 1).cell(0, 0)
    steps += [frame.paragraphs[0], frame.add_paragraph("Vent 2 valves")]
    frame.paragraphs[0].add_run("Close 12")
    inner = frame.add_table(1, 1).cell(0, 0)
    inner.text = "Lock"
    table = made.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Tag", "Kim"
    steps += [inner.paragraphs[0], table.cell(0, 0).paragraphs[0], made.add_paragraph("Sign")]
    for step in steps:
        if style:
            step.style = made.styles[style]
        else:
            item(step, 91)
    blank = made.add_paragraph()
    item(blank, 91)
    blank._p.get_or_add_pPr().append(parse_xml(f"<w:sectPr {nsdecls('w')}/>"))  # ends a section, is no step
    item(made.add_paragraph("Leave"), 91)
    first = 1 if style else 3
    one, *others = texts_of(made, tmp_path_factory)
    assert one.split("\n\n") == [
        f"{first}. Read the permit", f"{first + 1}. Close 12", f"{first + 2}. Vent 2 valves", f"{first + 3}. Lock",
    ]  # fmt: skip
    last = "3. Leave" if style else "9. Leave"
    assert others == [f"| {first + 4}. Tag | Kim |\n| --- | --- |", f"{first + 5}. Sign\n\n{last}"]


def test_a_column_of_numbers_alone_is_counted(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = docx.Document()
    table = made.add_table(3, 2)
    for row, text in enumerate(("pump", "valve", "gauge")):
        table.cell(row, 0).paragraphs[0].style = made.styles["List Number"]
        table.cell(row, 1).text = text
    assert table_of(made, tmp_path_factory) == [["1.", "pump"], ["2.", "valve"], ["3.", "gauge"]]


def test_bullets_and_plain_paragraphs_get_no_number(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = document()
    table = made.add_table(1, 2)
    table.cell(0, 0).paragraphs[0].style = made.styles["List Bullet"]
    table.cell(0, 0).paragraphs[0].add_run("pump")
    table.cell(0, 1).paragraphs[0].add_run("valve")
    item(table.cell(0, 1).paragraphs[0], 0)  # taken out of its list
    assert table_of(made, tmp_path_factory) == [["pump", "valve"]]


@pytest.mark.parametrize(
    ("kind", "label"),
    [("upperRoman", "3.IV)"), ("upperLetter", "3.D)"), ("decimalZero", "3.04)"), ("chicago", "3.4)")],
)
def test_numbers_are_spelt_as_the_list_says(kind: str, label: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    made = document(kind)
    table = made.add_table(1, 2)
    for index in range(4):
        item(made.paragraphs[index] if index < len(made.paragraphs) else table.cell(0, 0).add_paragraph(), 91, 1)
    table.cell(0, 1).text = "x"
    assert table_of(made, tmp_path_factory)[0][0].split()[-1] == label


LEGAL = """<w:abstractNum {0} w:abstractNumId="93">
<w:lvl w:ilvl="0"><w:numFmt w:val="upperRoman"/><w:lvlText w:val="%1."/></w:lvl>
<w:lvl w:ilvl="1"><w:numFmt w:val="lowerLetter"/>{1}<w:lvlText w:val="%1.%2"/></w:lvl>
<w:lvl w:ilvl="2"><w:numFmt w:val="lowerRoman"/>{2}<w:lvlText w:val="%2-%3"/></w:lvl>
</w:abstractNum>"""
OUTLINES = [0, 1, 2, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("in_table", [True, False], ids=["in a table", "outside"])
@pytest.mark.parametrize(
    ("legal", "restart", "labels"),
    [
        ("", "", "I. I.a a-i I.b b-i II. II.a a-i"),
        ("<w:isLgl/>", "", "I. 1.1 a-i 1.2 b-i II. 2.1 a-i"),
        ('<w:isLgl w:val="0"/>', "", "I. I.a a-i I.b b-i II. II.a a-i"),
        ("", '<w:lvlRestart w:val="0"/>', "I. I.a a-i I.b b-ii II. II.a a-iii"),
        ("", '<w:lvlRestart w:val="1"/>', "I. I.a a-i I.b b-ii II. II.a a-i"),
        ("", '<w:lvlRestart w:val="2"/>', "I. I.a a-i I.b b-i II. II.a a-i"),
        ('<w:lvlRestart w:val="0"/>', "", "I. I.a a-i I.b b-i II. II.c c-i"),
    ],
    ids=["plain", "legal", "not legal", "never anew", "anew behind the first", "anew behind the second", "level above"],
)
def test_levels_are_spelt_and_begin_anew_as_they_say(
    legal: str, restart: str, labels: str, in_table: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = document()
    numbering = made.part.numbering_part.element
    numbering.insert(0, parse_xml(LEGAL.format(nsdecls("w"), legal, restart)))
    numbering.append(parse_xml(LIST.replace('"90"', '"93"').format(nsdecls("w"), 94, "")))
    table = made.add_table(1, 2) if in_table else None
    for level in OUTLINES:
        item(made.add_paragraph("x") if table is None else table.cell(0, 0).add_paragraph("x"), 94, level)
    said = texts_of(made, tmp_path_factory)[0].replace("|", " ").split()
    assert [word for word in said if word.strip("-")] == [word for label in labels.split() for word in (label, "x")]


@pytest.mark.parametrize("linked", ['<w:styleLink w:val="Steps"/>', ""], ids=["both ways", "by the style alone"])
def test_a_list_is_numbered_as_the_list_style_says_that_it_names(
    linked: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = document()
    numbering = made.part.numbering_part.element
    if linked:
        numbering[0].insert(0, parse_xml(linked.replace("/>", f" {nsdecls('w')}/>")))
    link = '<w:abstractNum {0} w:abstractNumId="95"><w:numStyleLink w:val="Steps"/></w:abstractNum>'
    numbering.insert(1, parse_xml(link.format(nsdecls("w"))))
    numbering.append(parse_xml(LIST.replace('"90"', '"95"').format(nsdecls("w"), 96, "")))
    style = """<w:style {0} w:type="numbering" w:styleId="Steps"><w:name w:val="Steps"/>
    <w:pPr><w:numPr><w:numId w:val="91"/></w:numPr></w:pPr></w:style>"""
    made.styles.element.append(parse_xml(style.format(nsdecls("w"))))
    item(made.add_paragraph("Close"), 96)
    table = made.add_table(1, 2)
    item(table.cell(0, 0).paragraphs[0], 96, 1)
    table.cell(0, 1).text = "Kim"
    item(made.add_paragraph("Sign"), 96)
    assert texts_of(made, tmp_path_factory) == ["3. Close", "| 3.a) | Kim |\n| --- | --- |", "4. Sign"]
