"""Manuals and SDDS headers as records: real ones, packed ones, damaged ones."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.content.sdds import FirstPage, read_first_page, read_header, unpacked
from aps_rag_pipeline.records import Link, Part, Record
from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import (
    Change,
    Complete,
    Cursor,
    Failure,
    Ignored,
    Source,
    SourceContext,
    UnreadableError,
    Upsert,
)
from aps_rag_pipeline.stores.blobs import BlobStore

LOGGER = b"""SDDS1
!# little-endian
&description text="Monitored devices", contents="logger" &end
! a comment, with &column in it
&parameter name=StartTime, units=s, description="Time since start of epoch", type=double, &end
&parameter name=Title type=string fixed_value="RF \\"gap\\" voltage, kV" &end
&column
  name = S:RF1:VoltageM,  ! a readback
  units = kV, type = double,
  description = "Gap voltage,
     measured"
&end
&column name=ControlName, type=string, &end
&array name=Matrix, type=double, dimensions=2, units=1/(2$gp$r) &end
&data mode=ascii, &end
"""
ROWS = b'1621987213.5\n2 2\n1 2 3 4\n2\n1.5 S:RF1:VoltageM\n2.5 "S35 DCCT"\n'


def source_of(location: Path, **more: Any) -> Source:
    feed = Feed(name="manuals", source="sdds_docs", location=location, **more)
    return open_source(feed, SourceContext(ZoneInfo("America/Chicago"), BlobStore(location / ".blobs"), Limits()))


def read_all(location: Path, files: dict[str, bytes] | None = None, **more: Any) -> list[Change]:
    for name, data in (files or {}).items():
        (location / name).parent.mkdir(parents=True, exist_ok=True)
        (location / name).write_bytes(data)
    return list(source_of(location, **more).changes(None))


def records(changes: list[Change]) -> dict[str, Record]:
    return {change.record.id: change.record for change in changes if isinstance(change, Upsert)}


def failures(changes: list[Change]) -> dict[str, str]:
    return {change.place: change.reason for change in changes if isinstance(change, Failure)}


def ignored(changes: list[Change]) -> dict[str, str]:
    return {change.place: change.reason for change in changes if isinstance(change, Ignored)}


# headers


def test_a_header_is_described_and_tabled(tmp_path: Path) -> None:
    (record,) = records(read_all(tmp_path, {"log-2021-05.0006": LOGGER + ROWS}, url_template="https://x/{id}")).values()
    assert record.id == "log-2021-05.0006"
    assert record.title == "log-2021-05.0006: Monitored devices"
    assert record.created_at == datetime(2021, 5, 26, 0, 0, 13, tzinfo=UTC)
    assert record.url == "https://x/log-2021-05.0006"
    assert record.fields == {
        "format": "sdds", "sdds_version": 1, "mode": "ascii", "endian": "little", "contents": "logger",
        "parameter_count": 2, "column_count": 2, "array_count": 1, "pages": 1, "rows_in_first_page": 2,
        "start_time": "2021-05-26T00:00:13+00:00",
    }  # fmt: skip
    assert record.links == (Link("process_variable", "S:RF1:VoltageM"),)
    assert record.parts == (
        Part(
            "prose",
            "SDDS file log-2021-05.0006\nDescription: Monitored devices\nContents: logger\n"
            "SDDS version 1, ascii little-endian data; 2 parameters, 2 columns, 1 arrays.\n"
            "Pages: 1; rows in the first page: 2.",
        ),
        Part(
            "table",
            "| Name | Units | Type | Description | Value in the first page |\n| --- | --- | --- | --- | --- |\n"
            "| StartTime | s | double | Time since start of epoch | 1621987213.5 |\n"
            '| Title |  | string |  | RF "gap" voltage, kV |',
            "parameters",
            "Parameters",
        ),
        Part(
            "table",
            "| Name | Units | Type | Description |\n| --- | --- | --- | --- |\n"
            "| S:RF1:VoltageM | kV | double | Gap voltage, measured |\n| ControlName |  | string |  |",
            "columns",
            "Columns",
        ),
        Part(
            "table",
            "| Name | Units | Type | Description | Dimensions |\n| --- | --- | --- | --- | --- |\n"
            "| Matrix | 1/(2$gp$r) | double |  | 2 |",
            "arrays",
            "Arrays",
        ),
        Part("prose", "ControlName: S:RF1:VoltageM, S35 DCCT", "column ControlName, page 1", "ControlName"),
    )


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress, bytes])
def test_packed_files_of_any_name_are_read(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (record,) = records(read_all(tmp_path, {"orbit": pack(LOGGER + ROWS)})).values()
    assert record.title == "orbit: Monitored devices"
    assert record.fields["rows_in_first_page"] == 2


@pytest.mark.parametrize(("order", "mark"), [("<", b"little"), (">", b"big")])
def test_binary_data_of_both_byte_orders(tmp_path: Path, order: str, mark: bytes) -> None:
    header = (
        b"SDDS3\n!# " + mark + b"-endian\n&parameter name=Mode, type=string &end\n&column name=x, type=long &end\n"
        b"&data mode=binary &end\n"
    )
    page = struct.pack(order + "ii4siii", 3, 4, b"beam", 7, 8, 9)
    (record,) = records(read_all(tmp_path, {"a.sdds": header + page + page})).values()
    assert (record.fields["pages"], record.fields["rows_in_first_page"]) == (2, 3)
    assert record.fields["endian"] == mark.decode()
    assert "| Mode |  | string |  | beam |" in record.parts[1].text


def test_long_doubles_and_unknown_types_keep_their_header(tmp_path: Path) -> None:
    header = b"SDDS5\n&column name=x, type=%s, units=m &end\n&data mode=ascii &end\n1\n0\n"
    changes = read_all(tmp_path, {"a.sdds": header % b"longdouble", "b.sdds": header % b"imaginary"})
    assert {r.id: r.parts[1].text.split("\n")[-1] for r in records(changes).values()} == {
        "a.sdds": "| x | m | longdouble |  |", "b.sdds": "| x | m | imaginary |  |",
    }  # fmt: skip


def test_included_header_lines_come_from_the_feed_only(tmp_path: Path) -> None:
    outside = tmp_path / "outside.sdds"
    outside.write_bytes(b"&parameter name=Secret, type=string &end\n")
    feed = tmp_path / "feed"
    main = b'SDDS1\n&include filename="%s" &end\n&column name=x, type=double &end\n&data mode=ascii &end\n1\n2\n'
    changes = read_all(
        feed,
        {
            "lib/testdata/main.sdds": main % b"testdata/fields.txt",
            "lib/testdata/fields.txt": b"&parameter name=origin, type=string, fixed_value=here &end\n",
            "lib/up.sdds": main % b"../../outside.sdds",
            "lib/abs.sdds": main % str(outside).encode(),
            "lib/loop.sdds": main % b"loop2.txt",
            "lib/loop2.txt": b'&include filename="loop2.txt" &end\n&include filename="lib/loop3.txt" &end\n',
        },
    )
    found = records(changes)
    assert "| origin |  | string |  | here |" in found["lib/testdata/main.sdds"].parts[1].text
    for name in ("lib/up.sdds", "lib/abs.sdds"):
        assert found[name].fields["parameter_count"] == 0
        assert "(not found)" in found[name].parts[0].text
    assert found["lib/loop.sdds"].fields["column_count"] == 1


def test_a_changed_include_is_read_again(tmp_path: Path) -> None:
    files = {
        "a.sdds": b"SDDS1\n&include filename=f.inc &end\n&data mode=ascii &end\n",
        "f.inc": b"&parameter name=one, type=long &end\n",
    }
    first = read_all(tmp_path, files)
    (tmp_path / "f.inc").write_bytes(b"&parameter name=another, type=long &end\n")
    again = list(source_of(tmp_path).changes(first[-1].value))
    assert "another" in records(again)["a.sdds"].parts[1].text


def test_damage_is_told_with_its_place(tmp_path: Path) -> None:
    packed = gzip.compress(LOGGER + ROWS)
    changes = read_all(
        tmp_path,
        {
            "cut.sdds": b"SDDS1\n&column name=x, type=double",
            "nodata.sdds": b"SDDS1\n&column name=x, type=long, &end\n",
            "cut.gz": packed[: len(packed) // 8],
            "cut.xz": lzma.compress(LOGGER)[:40],
            "empty.sdds": b"",
            "other.gz": gzip.compress(b"something else"),
            "other.sdds": b"&parameter name=x &end\n",
            "picture.png": b"\x89PNG\r\n\x1a\n",
            "SDDSnotes": b"SDDS is a file protocol\n",
        },
    )
    assert records(changes) == {}
    assert {name: reason.split("(")[0].strip() for name, reason in failures(changes).items()} == {
        "cut.sdds": "the header's &column command is damaged or does not end",
        "nodata.sdds": "the header has no &data command",
        "cut.gz": "the packed data are damaged",
        "cut.xz": "the packed data are damaged",
        "empty.sdds": "the file is empty",
    }
    assert set(ignored(changes)) == {"other.gz", "other.sdds", "picture.png", "SDDSnotes"}
    assert not any(isinstance(c, Complete) and c.unit == "cut.sdds" for c in changes)


def test_a_packed_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb = lzma.compress(LOGGER + b"0" * 20_000_000)
    assert len(bomb) < 10_000
    (tmp_path / "bomb").write_bytes(bomb)
    assert len(unpacked(tmp_path / "bomb", 1000)) == 1000
    (record,) = records(read_all(tmp_path)).values()
    assert "pages" not in record.fields


def test_a_stated_number_of_rows_is_not_believed(tmp_path: Path) -> None:
    header = b"SDDS1\n!# little-endian\n&column name=x, type=double &end\n&data mode=binary &end\n"
    (record,) = records(read_all(tmp_path, {"a": header + struct.pack("<i", 2**31 - 1)})).values()
    assert record.fields["column_count"] == 1
    assert "pages" not in record.fields


def test_a_file_that_breaks_off_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    """pysdds keeps a line of a broken file in a place of its own, where the next reading would find it."""
    from pysdds.readers import readers

    good = tmp_path / "good"
    good.write_bytes(LOGGER + ROWS)
    readers.pushback_line_buf.append("&rubbish &end\n")
    page = read_first_page(good, read_header(good.read_bytes()))
    assert page == FirstPage(
        1,
        2,
        {"StartTime": "1621987213.5", "Title": 'RF "gap" voltage, kV'},
        {"ControlName": ("S:RF1:VoltageM", "S35 DCCT")},
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_header_is_read_or_refused(data: st.DataObject) -> None:
    text = bytearray(LOGGER)
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=6))
    try:
        header = read_header(b"SDDS1\n" + bytes(text[6:]), lambda name: bytes(text))
    except UnreadableError:
        return
    assert header.mode


# manuals


def test_chapters_are_records_and_fragments_are_read_in_place(tmp_path: Path) -> None:
    files = {
        "doc/guide.tex": rb"""\documentclass{article}\usepackage{tools}\input{preamble}
\begin{document}\title{Toolkit Guide}\maketitle All tools. \input{parts/pipe}
\section{Manual pages}\input{cavget.tex}\end{document}""",
        "doc/preamble.tex": rb"\newcommand{\progref}[1]{\texttt{#1()}}\pagestyle{plain}",
        "doc/tools.sty": rb"\newcommand{\aps}{Advanced Photon Source}",
        "doc/parts/pipe.tex": b"Pipes connect tools.",
        "doc/cavget.tex": rb"""% first a comment
\newpage
\begin{sddsprog}{cavget}\item \textbf{description:} At the \aps\ see \progref{cavput}.\end{sddsprog}""",
    }
    changes = read_all(tmp_path, files)
    found = records(changes)
    assert set(found) == {"doc/guide.tex", "doc/cavget.tex"}
    assert found["doc/guide.tex"].title == "Toolkit Guide"
    assert found["doc/guide.tex"].parts[0].text == "All tools. Pipes connect tools."
    assert found["doc/guide.tex"].links == (Link("document", "doc/cavget.tex", "cavget.tex"),)
    assert found["doc/cavget.tex"].parts == (
        Part("prose", "At the Advanced Photon Source see cavput().", "cavget > description", "description"),
    )
    assert ignored(changes) == {
        "doc/preamble.tex": "a fragment, read as part of doc/guide.tex",
        "doc/parts/pipe.tex": "a fragment, read as part of doc/guide.tex",
        "doc/tools.sty": "a LaTeX style: manuals that use it are read with its macros",
    }

    (tmp_path / "doc/preamble.tex").write_bytes(rb"\newcommand{\progref}[1]{\texttt{#1 (see there)}}")
    again = list(source_of(tmp_path).changes(changes[-1].value))
    assert records(again)["doc/cavget.tex"].parts[0].text == "At the Advanced Photon Source see cavput (see there)."
    assert [type(c) for c in source_of(tmp_path).changes(again[-1].value)] == [Cursor]


def test_nothing_outside_the_feed_is_taken_in(tmp_path: Path) -> None:
    (tmp_path / "secret.tex").write_bytes(b"the password")
    source = rb"\section{A} text \input{../secret} \input{%s}" % str(tmp_path / "secret.tex").encode()
    (record,) = records(read_all(tmp_path / "feed", {"a.tex": source})).values()
    assert record.parts[0].text == "text"
    assert record.fields["missing_inputs"] == ["../secret", str(tmp_path / "secret.tex")]


def test_an_endless_macro_costs_one_manual(tmp_path: Path) -> None:
    changes = read_all(
        tmp_path,
        {"bad.tex": rb"\section{x}\newcommand{\a}{\a\a}\a", "good.tex": rb"\section{y} fine", "empty.tex": b" \n"},
    )
    assert set(records(changes)) == {"good.tex"}
    assert failures(changes) == {"bad.tex": "its macros expand without end", "empty.tex": "the file is empty"}


def test_a_text_of_many_megabytes_is_no_manual(tmp_path: Path) -> None:
    changes = read_all(tmp_path, {"dump.txt": b"0.1 0.2 0.3\n" * 400_000, "big.tex": b"\\section{x} y\n" * 400_000})
    assert records(changes) == {}
    assert failures(changes) == {
        "dump.txt": "5 MB of text are no manual (the limit is 4)",
        "big.tex": "6 MB of text are no manual (the limit is 4)",
    }


def test_html_markdown_and_text_manuals(tmp_path: Path) -> None:
    html = """<html><head><meta charset="iso-8859-1"><title>sddsplot manual</title>
<meta name="author" content="L. Emery"></head><body><h1>sddsplot</h1><p>Plots für alle.</p><h2>Usage</h2>
<pre>sddsplot -col=x,y file</pre><table><tr><th>switch</th><th>meaning</th></tr><tr><td>-graph</td><td>style</td></tr>
</table><script>steal()</script></body></html>""".encode("latin-1")
    markdown = (
        b"# FAQ\n\nIntro.\n\n## <a id='q1'></a>How to plot?\n\nUse:\n\n```sh\nsddsplot x\n```\n\nSetext\n---\nEnd.\n"
    )
    changes = read_all(
        tmp_path,
        {"plot.HTML": html, "faq.md": markdown, "notes.txt": b"\xef\xbb\xbfPlain\r\nnotes\r\n", "nul.txt": b"a\x00b"},
    )
    found = records(changes)
    assert (found["plot.HTML"].title, found["plot.HTML"].author) == ("sddsplot manual", "L. Emery")
    assert [(p.kind, p.locator, p.text) for p in found["plot.HTML"].parts] == [
        ("prose", "sddsplot", "Plots für alle."),
        ("code", "sddsplot > Usage", "sddsplot -col=x,y file"),
        ("table", "sddsplot > Usage", "| switch | meaning |\n| --- | --- |\n| -graph | style |"),
    ]
    assert found["faq.md"].title == "FAQ"
    assert [(p.kind, p.locator, p.text) for p in found["faq.md"].parts] == [
        ("prose", "FAQ", "Intro."),
        ("prose", "FAQ > How to plot?", "Use:"),
        ("code", "FAQ > How to plot?", "sddsplot x"),
        ("prose", "FAQ > Setext", "End."),
    ]
    assert found["notes.txt"].parts == (Part("prose", "Plain\nnotes"),)
    assert failures(changes) == {"nul.txt": "binary data under the name of a text"}


# real files


def test_the_real_sdds_files(shared: Path) -> None:
    changes = read_all(shared / "sdds" / "files")
    found = records(changes)
    assert Counter(str(record.fields["format"]) for record in found.values()) == {"sdds": 18, "text": 1}
    assert failures(changes) == {}
    assert set(ignored(changes)) == {"LICENSE"}
    assert found["sources_compressed/log-2018-08.xz"].fields["endian"] == "big"
    assert found["sources/run_amplif2.cof"].fields["pages"] == 17
    twiss = found["sources/twiss_binary"]
    assert "| nux | 1/(2$gp$r) | double | Horizontal tune | 5.2958289" in twiss.parts[1].text
    config = found["sources/PRF1.mon"]
    assert Link("process_variable", "G:PW:Par:FundCavFlowM") in config.links
    logged = found["sources/log-2021-05.0006"]
    assert logged.links == (Link("process_variable", "P:RF12VoltageFieldProbe1"),)
    assert logged.created_at == datetime(2021, 5, 26, 0, 0, 12, tzinfo=UTC)
    snapshot = found["sources/dumpTimeStamps.snap"]
    assert snapshot.title == "dumpTimeStamps.snap: Namecapture BURT Request File"
    assert len([link for link in snapshot.links if link.target.startswith("S1:MPS:")]) > 5


def test_the_real_epics_manuals(shared: Path) -> None:
    changes = read_all(shared / "sdds" / "docs_epics")
    found = records(changes)
    assert Counter(str(record.fields["format"]) for record in found.values()) == {"latex": 43, "markdown": 4, "text": 1}
    assert failures(changes) == {}
    assert set(ignored(changes)) == {"LICENSE", "doc/common-preamble.tex"}
    guide = found["doc/EPICStoolkit.tex"]
    assert guide.title == "User's Guide for SDDS-compliant EPICS Toolkit Version 5"
    assert len([link for link in guide.links if link.kind == "document"]) == 40
    cavget = {part.title: part for part in found["doc/cavget.tex"].parts}
    assert list(cavget) == ["description", "examples", "synopsis", "switches", "see also", "author"]
    assert cavget["examples"].kind == "code"
    assert "cavget -list=Q -range=begin=1,end=4,format=%02d -list=:I" in cavget["examples"].text
    assert "- -noQuotes --- Suppress quotes around string values." in cavget["switches"].text
    assert cavget["see also"].text == "- cavput()\n- cawait()"
    assert found["doc/cavget.tex"].author == "Michael Borland, Robert Soliday"


@pytest.mark.slow
def test_every_real_file_of_this_source(shared: Path) -> None:
    changes = read_all(shared / "sdds")
    files = sum(1 for path in (shared / "sdds").rglob("*") if path.is_file())
    kinds = Counter(type(change).__name__ for change in changes)
    assert kinds["Upsert"] + kinds["Ignored"] + kinds["Failure"] == files
    assert (kinds["Upsert"], kinds["Ignored"], kinds["Failure"]) == (206, 11, 1)
    assert failures(changes) == {
        "docs/SDDSlib++/testdata/malformed/missing-data.sdds": "the header has no &data command"
    }
    for record in records(changes).values():
        assert record.parts, record.id
        assert all(part.text.strip() for part in record.parts), record.id
        if record.fields["format"] == "latex":
            printed = " ".join(part.text for part in record.parts if part.kind == "prose")
            assert "\\item" not in printed
            assert "\\textbf" not in printed
            assert "{\\" not in printed
