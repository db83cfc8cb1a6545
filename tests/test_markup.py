"""HTML to text, Markdown links and blocks, references that a text states."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.content.markup import (
    bare_urls,
    html_blocks,
    html_to_text,
    markdown_blocks,
    markdown_links,
    pipe_table,
)
from aps_rag_pipeline.content.references import find_references, is_process_variable

PAGE = """<html><head><title>T</title><style>x{}</style></head><body><h2>Top <b>line</b></h2>
<p>First <a href="http://x/y">here</a> and <a href="http://x/">http://x</a>.<br>next
line</p>loose
<ul><li>one<ul><li>nested</li></ul></li><li><p>two</p><p>more</p></li></ul><ol><li>a<li>b</ol>
<table><caption>Cap</caption><tr><th>A<th>B|C</tr><tr><td rowspan=2>1<td>2</tr><tr><td>3<br>4</tr></table>
<pre>code
  x</pre><script>bad()</script><!-- hidden --></body></html>"""


def test_a_page_keeps_its_blocks_and_drops_its_machinery() -> None:
    text = html_to_text(PAGE)
    assert text.split("\n\n") == [
        "## Top line",
        "First here (http://x/y) and http://x.\nnext line",
        "loose",
        "- one\n  - nested\n- two\n  more",
        "1. a\n2. b",
        "Cap",
        "| A | B\\|C |\n| --- | --- |\n| 1 | 2 |\n| 1 | 3 4 |",
        "```\ncode\n  x\n```",
    ]


def test_a_table_that_only_frames_the_page_is_no_table() -> None:
    framed = "<table><tr><td><p>in a frame</p></td></tr></table>"
    nested = f"<table><tr><td>menu</td><td>{framed}</td></tr></table>"
    assert [block.kind for block in html_blocks(framed + nested)] == ["prose"] * 3


def test_a_link_without_an_address_to_follow_is_its_text() -> None:
    html = '<a href="#top">up</a> <a href="javascript:x()">do</a> <a href="mailto:a@b.c">a@b.c</a> <a href="/p">p</a>'
    assert html_to_text(html, "https://h/x/") == "up do a@b.c p (https://h/p)"


@pytest.mark.parametrize(
    "html", ["<div>" * 20_000 + "deep", "<table><tr><td colspan=999999999>x" * 300, "<b><a>" * 5000]
)
def test_hostile_nesting_ends_in_time(html: str) -> None:
    started = time.monotonic()
    html_to_text(html)
    assert time.monotonic() - started < 20


@given(st.text(max_size=300))
@settings(max_examples=60, deadline=None)
def test_no_text_breaks_the_readers(text: str) -> None:
    html_to_text(text)
    markdown_links(text)
    find_references(text)
    joined = " ".join(block.text for block in markdown_blocks(text))
    assert len(joined) <= len(text) + 1


@given(st.lists(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4), min_size=1, max_size=5))
@settings(deadline=None)
def test_a_pipe_table_has_as_many_cells_in_every_row(rows: list[list[str]]) -> None:
    lines = [line.replace("\\|", "") for line in pipe_table(rows).split("\n") if line]
    assert len({line.count("|") for line in lines}) <= 1


def test_markdown_links_with_titles_blanks_parentheses_and_nesting() -> None:
    text = "![p](/log/attachments/a b (1).png) [![x](i.png)](http://t 'title') [d](<a b>) [[n](m)"
    assert [(link.text, link.target, link.image) for link in markdown_links(text)] == [
        ("p", "/log/attachments/a b (1).png", True),
        ("x", "http://t", False),
        ("x", "i.png", True),
        ("d", "a b", False),
        ("n", "m", False),
    ]
    assert bare_urls("see https://a.b/c_(d)), and http://x.y/z. https://a.b/c_(d)") == [
        "https://a.b/c_(d)",
        "http://x.y/z",
    ]


def test_markdown_tables_and_fences_are_blocks_of_their_own() -> None:
    text = "before\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n\n~~~py\nx | y\n~~~\nafter | all"
    assert [(block.kind, block.text) for block in markdown_blocks(text)] == [
        ("prose", "before"),
        ("table", "| a | b |\n|---|:-:|\n| 1 | 2 |"),
        ("code", "x | y"),
        ("prose", "after | all"),
    ]


def test_references_are_typed_by_how_the_text_states_them() -> None:
    text = (
        "See BELY:123, WRQ 20417, 20418 and 20419; work request #77123. Log entry 456 (log 10.5, log 2025-11-21 no). "
        "Downtime event 2025-0413, APS_1273342. S-DCCT:CurrentM fell at 12:30:05, PV:S35:KICKER:HVPS:VoltageM too. "
        "Note:this S38A:H3 https://h/view?id=105&logId=267 [doc](http://h/idcplg?dDocName=APS_99) "
        "TEAMS:rf/1700000000000."
    )
    found = {(link.kind, link.target) for link in find_references(text)}
    assert found == {
        ("log_entry", "BELY:123"),
        ("log_entry", "BELY:456"),
        ("log_entry", "BELY:267"),
        *(("work_request", f"WRQ:{number}") for number in (20417, 20418, 20419, 77123)),
        ("downtime", "DOWN:2025-0413"),
        ("document", "ICMS:APS_1273342"),
        ("document", "ICMS:APS_99"),
        ("chat", "TEAMS:rf/1700000000000"),
        ("process_variable", "S-DCCT:CurrentM"),
        ("process_variable", "S35:KICKER:HVPS:VoltageM"),
        ("url", "https://h/view?id=105&logId=267"),
        ("url", "http://h/idcplg?dDocName=APS_99"),
    }


@pytest.mark.parametrize(
    "token", ["12:30", "2025-11-21T16:38:06.157Z", "00:1A:2B:3C:4D:5E", "WRQ:123", "Error:what", "S38A:H3"]
)
def test_times_addresses_and_words_are_no_process_variables(token: str) -> None:
    assert not is_process_variable(token)


def test_nearly_all_real_process_variables_are_recognised(shared) -> None:
    import csv

    with (shared / "epics" / "aps_pv_list.csv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file)
        assert rows.fieldnames is not None
        name = next(column for column in rows.fieldnames if "ontrol" in column)
        names = {row[name] for row in rows if ":" in row[name]}
    known = sum(is_process_variable(name) for name in names)
    assert known / len(names) > 0.97


@pytest.mark.parametrize(
    "text", ["WRQ" + " " * 50_000, "[" * 50_000, "[a](" * 20_000, "WRQ 123," * 8000, "a:" * 30_000]
)
def test_hostile_repetition_takes_no_quadratic_time(text: str) -> None:
    started = time.monotonic()
    find_references(text)
    assert time.monotonic() - started < 5
