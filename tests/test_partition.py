"""Documents are read back word by word, tables cell by cell, and hostile files cost one clear failure each."""

from __future__ import annotations

import io
import subprocess
import sys
import time
import zipfile
from email.message import EmailMessage
from pathlib import Path
from zoneinfo import ZoneInfo

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import parse_xml
from hypothesis import given, settings
from hypothesis import strategies as st
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from aps_rag_pipeline.content.assembly import Partition, Picture
from aps_rag_pipeline.content.kinds import NoDocumentError
from aps_rag_pipeline.content.markup import pipe_table
from aps_rag_pipeline.content.partition import partition
from aps_rag_pipeline.content.pdf import partition_pdf
from aps_rag_pipeline.settings import Limits
from aps_rag_pipeline.sources.base import UnreadableError
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.documents import pdf, png, utc

ZONE = ZoneInfo("America/Chicago")
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def read(data: bytes, name: str, blobs: BlobStore, limits: Limits | None = None) -> Partition:
    return partition(data, name, limits or Limits(), blobs, ZONE)


def cells(table: str) -> list[list[str]]:
    """The cells of a pipe table, header first."""
    rows = [line for index, line in enumerate(table.split("\n")) if index != 1]
    return [[cell.strip().replace("\0", "|") for cell in row.replace("\\|", "\0").split("|")[1:-1]] for row in rows]


def shown(found: Partition) -> str:
    return "\n".join(f"{part.title}\n{part.text}" for part in found.parts)


# PDF


def test_pdf_pages_come_in_order_with_their_bookmarks_links_and_properties(blobs: BlobStore) -> None:
    pages = [
        ["Klystron modulator procedure", "S-DCCT:CurrentM reads (102.4 mA) after the trip."],
        ["Step 2: reset the HVPS interlock at sector 35.", "Wait for 300 s."],
        ["Appendix: the spare thyratron is in building 420."],
    ]
    found = read(
        pdf(pages, "Modulator reset", [("Overview", 0), ("Appendix", 2)], "https://icms.example/doc?id=7"),
        "p.pdf",
        blobs,
    )
    assert [part.text for part in found.parts] == ["\n".join(page) for page in pages]
    assert [part.locator for part in found.parts] == ["page 1", "page 2", "page 3"]
    assert [part.title for part in found.parts] == ["Overview", "Overview", "Appendix"]
    assert (found.title, found.fields["pages"]) == ("Modulator reset", 3)
    assert found.created_at == utc(2024, 1, 31, 18)
    assert [(link.kind, link.target) for link in found.links] == [("url", "https://icms.example/doc?id=7")]
    assert not found.attachments


def test_pdf_page_without_text_is_attached_for_ocr_at_its_place(blobs: BlobStore) -> None:
    text = ["The second page has a text layer with words enough to read."]
    data = pdf([None, text, ["Page 3"]])
    found = read(data, "folder/scan.pdf", blobs)
    assert [(a.page, a.part, a.media_type, a.name) for a in found.attachments] == [
        (1, 0, "application/pdf", "scan.pdf")
    ]
    assert blobs.get(found.attachments[0].sha256) == data
    assert found.parts[1].text == text[0]
    assert found.parts[2].text == "Page 3", "a short page that shows nothing else is read, not scanned"
    assert found.fields["pages_without_text"] == 1


def test_pdf_protected_damaged_and_overlong_are_permanent_failures(blobs: BlobStore) -> None:
    with pytest.raises(UnreadableError, match="password") as caught:
        read(pdf([["secret words on a page"]], password="beam"), "a.pdf", blobs)
    assert caught.value.permanent
    assert "without" in caught.value.remedy
    with pytest.raises(UnreadableError, match="damaged"):
        read(b"%PDF-1.7\nthis is no PDF\n%%EOF", "b.pdf", blobs)
    with pytest.raises(UnreadableError, match="max_pages"):
        read(pdf([["one"], ["two"], ["three"]]), "c.pdf", blobs, Limits(max_pages=2))
    with pytest.raises(UnreadableError, match=r"does not begin as a \.pdf"):
        read(b"just some words", "d.pdf", blobs)


def test_pdf_text_is_read_faster_than_five_pages_a_second(blobs: BlobStore) -> None:
    data = pdf([[f"Line {line} of page {page}: the RF cavity tripped." for line in range(45)] for page in range(60)])
    start = time.process_time()  # in this process: elsewhere the time of others would count
    found = partition_pdf(data, "long.pdf", Limits(), blobs, ZONE)
    assert len(found.parts) / (time.process_time() - start) > 5
    assert "Line 44 of page 59" in found.parts[59].text


# Word


def word() -> bytes:
    document = docx.Document()
    document.core_properties.title = "Kicker timing"
    document.core_properties.author = "A. Author"
    document.sections[0].header.paragraphs[0].text = "APS_1273342 rev 3"
    document.add_heading("Scope", 1)
    paragraph = document.add_paragraph("The kicker fires at ")
    paragraph._p.append(parse_xml(f'<w:ins {W} w:id="1" w:author="x"><w:r><w:t>3.2 us</w:t></w:r></w:ins>'))
    paragraph._p.append(parse_xml(f'<w:del {W} w:id="2" w:author="x"><w:r><w:delText>9 us</w:delText></w:r></w:del>'))
    document.add_paragraph("Check the trigger", style="List Bullet")
    document.add_paragraph("- 5 V at the gate", style="List Bullet")
    document.add_heading("Limits", 2)
    document.add_paragraph("Table 1: Kicker limits", style="Caption")
    table = document.add_table(3, 3)
    for row, texts in enumerate(
        (("PV", "low", "high"), ("S35:KICKER:HVPS:VoltageM", "1|2", "9"), ("", "two\nlines", "x"))
    ):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    document.add_paragraph("After the table.")
    document.add_heading("Pictures", 1)
    picture = document.add_paragraph("The screen shows it: ")
    picture.add_run().add_picture(io.BytesIO(png()), width=Inches(1))
    boxed = document.add_paragraph("Beside a box.")
    boxed._p.append(
        parse_xml(
            f'<w:r {W} xmlns:v="urn:schemas-microsoft-com:vml"><w:pict><v:shape><v:textbox><w:txbxContent>'
            "<w:p><w:r><w:t>Words in a box</w:t></w:r></w:p></w:txbxContent></v:textbox></v:shape></w:pict></w:r>"
        )
    )
    control = f"<w:sdt {W}><w:sdtContent><w:p><w:r><w:t>Words in a control</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    document.element.body.insert(len(document.element.body) - 1, parse_xml(control))
    document.add_comment(document.add_paragraph("Reviewed line.").runs, text="Is 3.2 right?", author="R. Reviewer")
    target = io.BytesIO()
    document.save(target)
    return target.getvalue()


def test_word_file_is_read_whole_and_in_order(blobs: BlobStore) -> None:
    found = read(word(), "kicker.docx", blobs)
    assert (found.title, found.author) == ("Kicker timing", "A. Author")
    assert [(part.kind, part.title, part.locator) for part in found.parts] == [
        ("prose", "Scope", "Scope"),
        ("table", "Table 1: Kicker limits", "Scope > Limits"),
        ("prose", "Limits", "Scope > Limits"),
        ("prose", "Pictures", "Pictures"),
        ("prose", "", "header and footer"),
    ]
    scope, table, after, pictures, margins = (part.text for part in found.parts)
    assert scope == "The kicker fires at 3.2 us\n\n- Check the trigger\n\n- - 5 V at the gate"
    assert cells(table) == [["PV", "low", "high"], ["S35:KICKER:HVPS:VoltageM", "1|2", "9"], ["", "two lines", "x"]]
    assert after == "After the table."
    assert pictures.split("\n\n") == [
        "The screen shows it:",
        "Beside a box.",
        "Words in a box",
        "Words in a control",
        "Reviewed line.",
        "[Comment by R. Reviewer: Is 3.2 right?]",
    ]
    assert margins == "APS_1273342 rev 3"
    (picture,) = found.attachments
    assert (picture.media_type, picture.part) == ("image/png", 3)
    assert blobs.get(picture.sha256) == png()


def test_a_lock_file_is_no_document(blobs: BlobStore) -> None:
    lock = b"\x05A. Author" + b" " * 44 + "A. Author".encode("utf-16-le") + b" \x00" * 46
    for name in ("~$kicker.xlsx", "plans/~$plan.docx"):
        with pytest.raises(NoDocumentError, match="lock file"):
            read(lock, name, blobs)


def test_word_template_and_macro_file_are_read_like_documents(blobs: BlobStore) -> None:
    for suffix, kind in (
        ("dotx", "vnd.openxmlformats-officedocument.wordprocessingml.template"),
        ("docm", "vnd.ms-word.document.macroEnabled"),
    ):
        disguised = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(word())) as source, zipfile.ZipFile(disguised, "w") as target:
            for member in source.namelist():
                plain = b"vnd.openxmlformats-officedocument.wordprocessingml.document.main"
                target.writestr(member, source.read(member).replace(plain, f"{kind}.main".encode()))
        assert "The kicker fires at 3.2 us" in shown(read(disguised.getvalue(), f"form.{suffix}", blobs))


def test_merged_cells_stay_in_their_columns(blobs: BlobStore) -> None:
    document = docx.Document()
    table = document.add_table(3, 3)
    for row in range(3):
        for column in range(3):
            table.cell(row, column).text = f"c{row}{column}" if (row, column) not in ((0, 1), (2, 0)) else ""
    table.cell(0, 0).merge(table.cell(0, 1))
    table.cell(1, 0).merge(table.cell(2, 0))
    target = io.BytesIO()
    document.save(target)
    (part,) = read(target.getvalue(), "m.docx", blobs).parts
    assert cells(part.text) == [["c00", "", "c02"], ["c10", "c11", "c12"], ["c10", "c21", "c22"]]


# PowerPoint


def test_slides_with_notes_tables_charts_groups_and_pictures(blobs: BlobStore) -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "RF trips in May"
    slide.placeholders[1].text = "Klystron 3\nKlystron 4"
    grid = slide.shapes.add_table(2, 2, Inches(1), Inches(5), Inches(3), Inches(1)).table
    for row, texts in enumerate((("day", "trips|h"), ("5/1", "7"))):
        for column, text in enumerate(texts):
            grid.cell(row, column).text = text
    slide.shapes.add_textbox(Inches(-0.2), Inches(6.5), Inches(1), Inches(1)).text_frame.text = "Begins off the slide"
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(Inches(1), Inches(6.8), Inches(1), Inches(1)).text_frame.text = "In a group"
    slide.shapes.add_picture(io.BytesIO(png()), Inches(1), Inches(7))
    data = CategoryChartData()
    data.categories = ["East", "West"]
    data.add_series("Trips", (1.25, 2))
    second = deck.slides.add_slide(deck.slide_layouts[5])
    second.shapes.title.text = "Sectors"
    second.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, Inches(2), Inches(3), Inches(3), data)
    slide.notes_slide.notes_text_frame.text = "Ask about the HVPS."
    target = io.BytesIO()
    deck.save(target)

    found = read(target.getvalue(), "talk.pptx", blobs)
    assert (found.title, found.fields["slides"]) == ("RF trips in May", 2)
    first = [part for part in found.parts if part.locator == "slide 1"]
    assert {part.title for part in first} == {"RF trips in May"}
    text = "\n\n".join(part.text for part in first if part.kind == "prose")
    assert sorted(text.replace("\n\n", "\n").split("\n")) == sorted(
        ["Klystron 3", "Klystron 4", "Begins off the slide", "In a group", "Notes: Ask about the HVPS."]
    )
    assert text.index("Klystron 4") < text.index("Begins off the slide") < text.index("Notes:")
    assert [cells(part.text) for part in first if part.kind == "table"] == [[["day", "trips|h"], ["5/1", "7"]]]
    (chart,) = (part for part in found.parts if part.locator == "slide 2")
    assert cells(chart.text) == [["", "Trips"], ["East", "1.25"], ["West", "2"]]
    assert [blobs.get(a.sha256) for a in found.attachments] == [png()]


# Workbooks and delimited text


def test_each_sheet_is_a_table_with_its_caption(blobs: BlobStore) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Magnets"
    for row in (["Quadrupole currents", None], ["PV", "A"], ["S1A:Q1:CurrentAO", 80.5], ["S1A:Q2:CurrentAO", 81]):
        sheet.append(row)
    other = book.create_sheet("Note")
    other["A1"] = "Only words here"
    target = io.BytesIO()
    book.save(target)
    magnets, note = read(target.getvalue(), "m.xlsx", blobs).parts
    assert (magnets.kind, magnets.title, magnets.locator) == ("table", "Quadrupole currents", "sheet Magnets")
    assert cells(magnets.text) == [["PV", "A"], ["S1A:Q1:CurrentAO", "80.5"], ["S1A:Q2:CurrentAO", "81"]]
    assert "Only words here" in note.text


def test_csv_is_a_table_whatever_its_delimiter(blobs: BlobStore) -> None:
    (part,) = read(b'name;value\n"a;b";1\nc;2\n', "x.csv", blobs).parts
    assert (part.kind, cells(part.text)) == ("table", [["name", "value"], ["a;b", "1"], ["c", "2"]])


# HTML, Markdown, text, mail

PAGE = """<!DOCTYPE html><html><head><title>Water station</title><meta name="author" content="J. Doe">
<meta name="date" content="2024-05-06T07:08:09Z"><script>alert('x')</script></head><body>
<nav><a href="/home">Home page</a></nav><h1>Pumps</h1><p>Pump <b>P3</b> runs;
see <a href="https://a.example/p3">its page</a>.</p>
<ul><li><p>first item</p><ul><li>inner item</li></ul></li><li>second item</li></ul>
<h2>Readings</h2><table><caption>Flows</caption><tr><th>loop</th><th>gpm</th><th>note</th></tr>
<tr><td rowspan="2">A</td><td>10</td><td>ok</td></tr><tr><td>11</td><td>low</td></tr></table>
<pre>caput P3:Set 1
  caget P3:Rbv</pre><img src="p3.png" alt="Pump panel"><p hidden>unseen</p></body></html>"""


def test_page_without_site_navigation_and_scripts(blobs: BlobStore) -> None:
    found = partition(
        PAGE.encode(), "w.html", Limits(), blobs, ZONE, find_picture=lambda address: picture_of(address, "p3.png")
    )
    assert (found.title, found.author, found.created_at) == ("Water station", "J. Doe", utc(2024, 5, 6, 7, 8, 9))
    assert [(part.kind, part.title, part.locator) for part in found.parts] == [
        ("prose", "Pumps", "Pumps"),
        ("table", "Flows", "Pumps > Readings"),
        ("code", "Readings", "Pumps > Readings"),
        ("prose", "Readings", "Pumps > Readings"),
    ]
    assert found.parts[0].text.startswith("Pump P3 runs; see its page.")
    assert all(item in found.parts[0].text for item in ("first item", "inner item", "second item"))
    assert cells(found.parts[1].text) == [["loop", "gpm", "note"], ["A", "10", "ok"], ["A", "11", "low"]]
    assert found.parts[2].text == "caput P3:Set 1\n  caget P3:Rbv"
    assert found.parts[3].text == "Pump panel"
    assert not any(word in shown(found) for word in ("Home page", "alert", "unseen"))
    assert [(link.kind, link.target, link.text) for link in found.links] == [
        ("url", "https://a.example/p3", "its page")
    ]
    assert [(a.name, a.part) for a in found.attachments] == [("p3.png", 3)]


def picture_of(address: str, wanted: str) -> Picture | None:
    return Picture(wanted, png()) if address == wanted else None


def test_layout_tables_are_boxes_and_the_tables_in_them_are_tables(blobs: BlobStore) -> None:
    inner = "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"
    page = f"<html><table><tr><td>menu words</td><td><p>text</p>{inner}</td></tr></table></html>"
    prose, table = read(page.encode(), "x.html", blobs).parts
    assert prose.text == "menu words\n\ntext"
    assert cells(table.text) == [["a", "b"], ["1", "2"]]


@pytest.mark.parametrize("bad", ["<table><tr><td>", "<div>", "<ul><li>", "<a href=x>", "<b>"])
def test_endless_nesting_is_read_in_passing(bad: str, blobs: BlobStore) -> None:
    start = time.perf_counter()
    found = read((f"<html>{bad * 3000}words").encode(), "x.html", blobs)
    assert "words" in shown(found)
    assert time.perf_counter() - start < 20


def test_picture_inside_a_page_is_attached(blobs: BlobStore) -> None:
    import base64

    page = f'<p>before</p><img src="data:image/png;base64,{base64.b64encode(png()).decode()}"><p>after</p>'
    (attachment,) = read(page.encode(), "x.html", blobs).attachments
    assert (attachment.media_type, blobs.get(attachment.sha256)) == ("image/png", png())


def test_markdown_sections_tables_code_and_front_matter(blobs: BlobStore) -> None:
    text = (
        "---\ntitle: Gun heater\nauthor: K. Kim\n---\n# Warm-up\n\nRaise *slowly*.\n\n"
        "- x\n- y\n    - z\n\n    more of y\n\n"
        "| step | mA |\n|---|---|\n| 1 | 2.5 |\n\n```tcl\nset heater 1\n\n# a comment\n```\n\n## Cool-down\n\nWait.\n"
    )
    found = read(text.encode(), "gun.md", blobs)
    assert (found.title, found.author) == ("Gun heater", "K. Kim")
    assert [(part.kind, part.title) for part in found.parts] == [
        ("prose", "Warm-up"),
        ("table", "Warm-up"),
        ("code", "Warm-up"),
        ("prose", "Cool-down"),
    ]
    assert found.parts[0].text.split() == ["Raise", "slowly.", "-", "x", "-", "y", "-", "z", "more", "of", "y"]
    assert cells(found.parts[1].text) == [["step", "mA"], ["1", "2.5"]]
    assert found.parts[2].text == "set heater 1\n\n# a comment"


def test_plain_text_in_any_encoding(blobs: BlobStore) -> None:
    for encoding in ("utf-8-sig", "utf-16", "cp1252"):
        (part,) = read("Größe: 5 µm\r\n\r\nnächste Zeile\r\n".encode(encoding), "n.txt", blobs).parts
        assert part.text == "Größe: 5 µm\n\nnächste Zeile"


def test_mail_with_html_body_inline_picture_and_attachment(blobs: BlobStore) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"] = "Op Erator <op@x.example>", "rf@x.example"
    mail["Subject"], mail["Date"] = "Vacuum à S12", "Mon, 06 May 2024 10:00:00 -0500"
    mail.set_content("plain form")
    mail.add_alternative('<p>Pressure <b>rose</b></p><img src="cid:shot"><p>then fell.</p>', subtype="html")
    mail.get_payload()[1].add_related(png(), "image", "png", cid="<shot>", filename="shot.png")
    mail.add_attachment(pdf([["words of the report"]]), maintype="application", subtype="pdf", filename="report.pdf")
    found = read(mail.as_bytes(), "m.eml", blobs)
    assert (found.title, found.author) == ("Vacuum à S12", "Op Erator <op@x.example>")
    assert found.created_at == utc(2024, 5, 6, 15)
    message, report = found.parts
    assert message.text.split("\n\n")[1:] == ["Pressure rose", "then fell."]
    assert "plain form" not in message.text
    assert (report.text, report.locator) == ("words of the report", "report.pdf: page 1")
    assert [(a.name, a.media_type) for a in found.attachments] == [
        ("shot.png", "image/png"),
        ("report.pdf", "application/pdf"),
    ]


def test_forwarded_mail_and_second_text_are_read(blobs: BlobStore) -> None:
    inner, outer = EmailMessage(), EmailMessage()
    inner["From"], inner["Subject"] = "first@x.example", "Original"
    inner.set_content("words of the original")
    outer["From"], outer["Subject"] = "second@x.example", "Fwd"
    outer.set_content("see below")
    outer.add_attachment(inner)
    outer.add_attachment("a late note", disposition="inline")
    text = shown(read(outer.as_bytes(), "m.eml", blobs))
    assert text.index("see below") < text.index("From: first@x.example") < text.index("words of the original")
    assert "a late note" in text


def test_picture_file_is_an_attachment(blobs: BlobStore) -> None:
    found = read(png(), "screens/panel.PNG", blobs)
    assert [(a.name, a.media_type, a.part) for a in found.attachments] == [("panel.PNG", "image/png", -1)]


def test_opendocument_text(blobs: BlobStore) -> None:
    names = "".join(
        f' xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for short, name in (("office", "office"), ("text", "text"), ("table", "table"))
    )
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    body = (
        '<text:h text:outline-level="1">Head</text:h><text:p>One<text:s/>two<text:note><text:note-body><text:p>foot'
        "</text:p></text:note-body></text:note></text:p><text:list><text:list-item><text:p>item</text:p></text:list-item>"
        "</text:list><table:table><table:table-row>" + cell.format("a") + cell.format("b") + "</table:table-row>"
        "<table:table-row>" + cell.format("1") + cell.format("2") + "</table:table-row></table:table>"
    )
    body = f"<office:body><office:text>{body}</office:text></office:body>"
    xml = f"<office:document-content{names}>{body}</office:document-content>"
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        archive.writestr("content.xml", xml)
    prose, table = read(target.getvalue(), "x.odt", blobs).parts
    assert (prose.title, prose.text) == ("Head", "One two [foot]\n\n- item")
    assert cells(table.text) == [["a", "b"], ["1", "2"]]


# What cannot be read


def packed(**members: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/").replace("_xml", ".xml"), data)
    return target.getvalue()


def test_zip_bomb_is_refused_before_it_is_opened(blobs: BlobStore) -> None:
    bomb = packed(**{"[Content_Types].xml": b"<Types/>", "word/document.xml": bytes(30_000_000)})
    assert len(bomb) < 100_000
    with pytest.raises(UnreadableError, match="max_unpacked_mb") as caught:
        read(bomb, "bomb.docx", blobs, Limits(max_unpacked_mb=20))
    assert caught.value.permanent


def test_entities_are_never_followed(blobs: BlobStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("PLANTED-SECRET")
    entity = f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY x SYSTEM "file://{secret}">]>'.encode()
    hostile = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(word())) as source, zipfile.ZipFile(hostile, "w") as target:
        for member in source.namelist():
            data = source.read(member)
            if member == "word/document.xml":
                data = entity + data.split(b"?>", 1)[1].replace(b"After the table.", b"&x;")
            target.writestr(member, data)
    with pytest.raises(UnreadableError, match="entities"):
        read(hostile.getvalue(), "x.docx", blobs)
    page = read(
        entity.replace(b"DOCTYPE d", b"DOCTYPE html") + b"<html><body><p>a &x; b</p></body></html>", "x.html", blobs
    )
    assert "PLANTED-SECRET" not in shown(page)


def ole(name: str) -> bytes:
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504) + name.encode("utf-16-le") + bytes(512)


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (ole("WordDocument"), "old.doc", r"\.doc"),
        (ole("PowerPoint Document"), "old.ppt", r"\.ppt"),
        (ole("EncryptedPackage"), "locked.docx", "password"),
        (b"{\\rtf1 hello}", "x.rtf", "rich-text"),
        (packed(**{"[Content_Types].xml": b"<Types/>", "word/other.xml": b"<a/>"}), "x.docx", "cannot be read as docx"),
        (b"PK\x03\x04 cut off", "x.docx", "damaged zip"),
        (b"plain words", "x.docx", "does not begin as a .docx"),
        (bytes(range(256)) * 8, "x.pptx", "does not begin as a .pptx"),
        (packed(mimetype=b"application/vnd.oasis.opendocument.presentation"), "x.odp", "OpenDocument"),
    ],
)
def test_unreadable_files_say_why_and_what_would_help(data: bytes, name: str, said: str, blobs: BlobStore) -> None:
    with pytest.raises(UnreadableError, match=said) as caught:
        read(data, name, blobs)
    assert caught.value.permanent
    assert caught.value.remedy


@pytest.mark.parametrize("data", [bytes(range(256)) * 8, packed(readme=b"x"), b"\x7fELF" + bytes(100)])
def test_what_is_no_document_is_told_apart_from_a_failure(data: bytes, blobs: BlobStore) -> None:
    with pytest.raises(NoDocumentError):
        read(data, "thing.bin", blobs)


@settings(max_examples=60, deadline=None)
@given(
    data=st.binary(min_size=1, max_size=400),
    name=st.sampled_from(["a.pdf", "a.docx", "a.html", "a.md", "a.eml", "a.csv", "a"]),
)
def test_no_bytes_crash_the_reader(data: bytes, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    blobs = BlobStore(tmp_path_factory.getbasetemp() / "fuzz")
    try:
        found = read(data, name, blobs)
    except UnreadableError:
        pass
    else:
        assert all(part.text == part.text.strip("\n") for part in found.parts)


WORDS = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.lists(WORDS, min_size=3, max_size=3), min_size=2, max_size=6))
def test_tables_of_pages_come_back_cell_by_cell(
    rows: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    blobs = BlobStore(tmp_path_factory.getbasetemp() / "tables")
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    (part,) = read(f"<html><table>{lines}</table></html>".encode(), "t.html", blobs).parts
    assert part.text == pipe_table(rows)
    assert cells(part.text) == rows


# unstructured


def test_the_private_name_that_keeps_unstructured_offline_is_still_there() -> None:
    code = (
        "from aps_rag_pipeline.content.sentences import prepare_unstructured, _sentence_ends\n"
        "import os\n"
        "prepare_unstructured()\n"
        "from unstructured.nlp import tokenize\n"
        "assert os.environ['SCARF_NO_ANALYTICS'] and os.environ['DO_NOT_TRACK']\n"
        "assert tokenize._load_spacy_model is _sentence_ends\n"
        "assert tokenize.sent_tokenize('One trip. Two trips.') == ['One trip.', 'Two trips.']\n"
        "tokenize.pos_tag('The beam is lost.')\n"
        "assert tokenize._get_nlp().meta['name'] != 'core_web_sm'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=Path(__file__).parents[1])


def test_unstructured_still_has_the_function_that_is_replaced() -> None:
    import ast
    import importlib.util

    spec = importlib.util.find_spec("unstructured")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse((Path(spec.origin).parent / "nlp" / "tokenize.py").read_text())
    functions = {node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert "_load_spacy_model" in functions
    assert "_load_spacy_model()" in functions["_get_nlp"]


# Real files

FAST = (
    "docx/par-hyperlinks.docx",
    "docx/shp-inline-shape-access.docx",
    "docx/tbl-cell-props.docx",
    "pptx/cht-chart-type.pptx",
    "pptx/prs-notes.pptx",
    "pypdf/004-pdflatex-4-pages/pdflatex-4-pages.pdf",
    "pypdf/025-attachment/with-attachment.pdf",
    "pypdf/012-libreoffice-form/libreoffice-form.odt",
    "ocrmypdf/cardinal.pdf",
    "ocrmypdf/cmyk.pdf",
    "ocrmypdf/type3_font_nomapping.pdf",
)


def test_real_documents(shared: Path, blobs: BlobStore) -> None:
    found = {name: read((shared / "documents" / name).read_bytes(), name, blobs) for name in FAST}
    links = [link.target for link in found["docx/par-hyperlinks.docx"].links]
    assert links[:2] == ["http://yahoo.com/", "http://google.com/"]
    assert [a.media_type for a in found["docx/shp-inline-shape-access.docx"].attachments] == ["image/png", "image/jpeg"]
    assert cells(found["docx/tbl-cell-props.docx"].parts[0].text)[0] == ["a", "b", "c", "d"]
    assert len(found["pptx/cht-chart-type.pptx"].parts) > 25
    assert found["pptx/prs-notes.pptx"].parts[0].text == "Notes: Notes"
    assert len(found["pypdf/004-pdflatex-4-pages/pdflatex-4-pages.pdf"].parts) == 4
    assert [a.name for a in found["pypdf/025-attachment/with-attachment.pdf"].attachments] == ["image.png"]
    assert [a.page for a in found["ocrmypdf/cardinal.pdf"].attachments] == [1, 2, 3, 4]
    assert "PureMagenta" in found["ocrmypdf/cmyk.pdf"].parts[0].text, "its text layer has the bytes of letters swapped"
    assert [a.page for a in found["ocrmypdf/type3_font_nomapping.pdf"].attachments] == [1]
    assert "Example for a Form" in found["pypdf/012-libreoffice-form/libreoffice-form.odt"].parts[0].text


@pytest.mark.slow
def test_every_real_document_ends_as_text_or_as_a_named_failure(shared: Path, blobs: BlobStore) -> None:
    outcome: dict[str, int] = {}
    for path in sorted((shared / "documents").rglob("*")):
        if not path.is_file():
            continue
        start = time.perf_counter()
        try:
            found = read(path.read_bytes(), path.name, blobs)
            result = "read" if found.parts or found.attachments else "empty"
        except UnreadableError as error:
            result = f"failed: {path.name}" if error.remedy else "no remedy"
        assert time.perf_counter() - start < 60, path
        outcome[result] = outcome.get(result, 0) + 1
    assert outcome.pop("read") > 80
    assert outcome.pop("empty") < 15
    assert outcome == {"failed: invalid.pdf": 1, "failed: unreadablemetadata.pdf": 1}
