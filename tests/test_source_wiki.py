"""Wiki pages of five markups: sections, code, tables, links that lead to pages, pictures of the wiki's own folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.content.dokuwiki import dokuwiki_to_html
from aps_rag_pipeline.content.mediawiki import mediawiki_to_html
from aps_rag_pipeline.content.rest import rest_to_html
from aps_rag_pipeline.records import Record
from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Change, Complete, Cursor, Failure, SourceContext, Upsert
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.documents import png, utc


class Wiki:
    """A wiki in a folder, read again and again as the sync does."""

    def __init__(self, root: Path) -> None:
        self.root = root / "wiki"
        self.root.mkdir()
        self.blobs = BlobStore(root / "blobs")
        self.cursor: object = None

    def write(self, name: str, data: bytes | str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)

    def changes(self, location: Path | None = None) -> list[Change]:
        feed = Feed(name="wiki", source="wiki", location=location or self.root)
        context = SourceContext(ZoneInfo("America/Chicago"), self.blobs, Limits())
        found = list(open_source(feed, context).changes(self.cursor))
        assert isinstance(found[-1], Cursor)
        self.cursor = found[-1].value
        return found[:-1]

    def records(self) -> dict[str, Record]:
        return records(self.changes())


@pytest.fixture
def wiki(tmp_path: Path) -> Wiki:
    return Wiki(tmp_path)


def records(changes: Iterable[Change]) -> dict[str, Record]:
    return {change.record.id: change.record for change in changes if isinstance(change, Upsert)}


def layout(record: Record) -> list[tuple[str, str, str]]:
    return [(part.kind, part.title, part.text) for part in record.parts]


def targets(record: Record) -> set[tuple[str, str]]:
    return {(link.kind, link.target) for link in record.links}


def test_markdown_page(wiki: Wiki) -> None:
    wiki.write("rf/img/Panel one.png", png())
    wiki.write("rf/Modulators.md", "# Modulators\n\nwords")
    wiki.write(
        "rf/Klystrons.md",
        "---\ntitle: Klystron guide\nauthor: [A. Bee, C. Dee]\ndate: 2024-05-06 07:08\nupdated: 2024-06-07\n"
        "access: [rf, ops]\ntags: [rf, klystron]\nreview:\n  by: E. Fox\n---\n# Klystrons\n\n"
        "See [modulators](Modulators.md#hv), [other](../ops/Start%20up.md), [web](https://a.example/x), [top](#top),\n"
        "![the panel](<img/Panel one.png>) and WRQ:20417.\n\n## Limits\n\n| PV | max |\n|---|---|\n| S1:V | 3 |\n\n"
        "```sh\ncaput S1:V 3\n```\n",
    )
    page = wiki.records()["rf/Klystrons"]
    assert (page.title, page.author, page.access) == ("Klystron guide", "A. Bee, C. Dee", ("ops", "rf"))
    assert (page.created_at, page.modified_at) == (utc(2024, 5, 6, 12, 8), utc(2024, 6, 7, 5))
    assert page.fields == {"tags": ["rf", "klystron"], "review_by": "E. Fox"}
    assert layout(page) == [
        ("prose", "Klystrons", "See modulators, other, web, top, the panel and WRQ:20417."),
        ("table", "Limits", "| PV | max |\n| --- | --- |\n| S1:V | 3 |"),
        ("code", "Limits", "caput S1:V 3"),
    ]
    assert page.parts[1].locator == "Klystrons > Limits"
    assert {("wiki", "rf/Modulators"), ("wiki", "ops/Start up"), ("url", "https://a.example/x")} <= targets(page)
    assert ("work_request", "WRQ:20417") in targets(page)
    (picture,) = page.attachments
    assert (picture.name, picture.part, wiki.blobs.get(picture.sha256)) == ("Panel one.png", 0, png())


@pytest.mark.parametrize(
    ("stated", "labels"), [("", ()), ("access:", ()), ("access: 7", ()), ("access: rf; ops", ("ops", "rf"))]
)
def test_labels_that_cannot_be_read_admit_nobody(wiki: Wiki, stated: str, labels: tuple[str, ...]) -> None:
    wiki.write("p.md", f"---\ntitle: P\n{stated}\n---\nwords")
    assert wiki.records()["p"].access == (labels if stated else ("public",))


def test_text_between_two_rules_is_no_front_matter(wiki: Wiki) -> None:
    wiki.write("p.md", "---\njust prose, no values\n---\nmore words")
    wiki.write("hostile.md", "---\n!!python/object/apply:os.system ['true']\n---\nwords")
    found = wiki.records()
    assert "just prose, no values" in "\n".join(f"{part.title} {part.text}" for part in found["p"].parts)
    assert "words" in found["hostile"].parts[-1].text


def test_html_page(wiki: Wiki) -> None:
    wiki.write("a/pic.png", png())
    wiki.write(
        "a/Page.html",
        '<html><head><title>Page - Our wiki</title><meta name="author" content="J. D."></head><body><nav>Menu</nav>'
        '<h1>Water</h1><p>See <a href="../b/Other.html">other</a> and <a href="data.csv">data</a>.</p>'
        '<img src="pic.png"><pre>x = 1\n y = 2</pre></body></html>',
    )
    wiki.write("b/Other.html", "<p>other</p>")
    page = wiki.records()["a/Page"]
    assert (page.title, page.author) == ("Water", "J. D.")
    assert layout(page) == [("prose", "Water", "See other and data."), ("code", "Water", "x = 1\n y = 2")]
    assert targets(page) == {("wiki", "b/Other"), ("file", "a/data.csv")}
    assert [a.name for a in page.attachments] == ["pic.png"]


REST = """\
Alignment
=========

.. contents:: Table of contents

.. toctree::
   :maxdepth: 1
   :glob:

   Other page <sub/other>
   sub/item*

Turn on :guilabel:`HV` of :pv:`S1:V`, see :doc:`the guide <sub/other>` and :ref:`here <label>`.

.. include:: /etc/hostname

.. raw:: html

   <script>alert(1)</script><p>words of raw HTML</p>

.. raw:: html
   :file: /etc/hostname

.. tip-box:: A *custom* tip
   :width: 3

   Keep the words of unknown directives.

1. First step::

     caput S1:V 3

Words between.

2. Second step

.. code-block:: python
   :caption: not an option of docutils
   :unknown: x

   print("kept")

.. literalinclude:: start.sh
   :language: bash

.. list-table:: Limits
   :header-rows: 1

   * - PV
     - max
   * - S1:V
     - 3

.. figure:: ../img/panel.png
   :width: 400px

   The panel

+-----+----+
| bad   table |
+-----+----+
"""


def test_rest_page_keeps_what_only_sphinx_knows_and_reads_no_other_file(wiki: Wiki) -> None:
    wiki.write("img/panel.png", png())
    wiki.write("docs/align.rst", REST)
    wiki.write("docs/sub/other.rst", "Other\n-----\n\nwords")
    page = wiki.records()["docs/align"]
    assert page.title == "Alignment"
    text = "\n".join(part.text for part in page.parts)
    assert "Turn on HV of S1:V, see the guide and here." in text
    assert "A custom tip\n\nKeep the words of unknown directives." in text
    assert "2. Second step" in text, "steps keep their numbers"
    code = [part.text for part in page.parts if part.kind == "code"]
    assert any('print("kept")' in stretch for stretch in code)
    assert any("bad   table" in stretch for stretch in code), "a malformed table is kept as it is written"
    assert "caput S1:V 3" in text
    assert "start.sh" in text
    assert ("table", "Limits", "| PV | max |\n| --- | --- |\n| S1:V | 3 |") in layout(page)
    assert "The panel" in text
    assert [a.name for a in page.attachments] == ["panel.png"]
    assert "words of raw HTML" in text
    assert "alert" not in text
    assert Path("/etc/hostname").read_text().strip() not in text
    assert ("wiki", "docs/sub/other") in targets(page)
    assert not any("item*" in target for _, target in targets(page))


DOKUWIKI = """\
====== Printer ======
{{tag>guide "two words"}}
~~NOTOC~~
Heat the **bed** to //60 °C//, ''M140'' ((see the sheet)), at https://a.example/x//y.
See [[..:start|the start]], [[Other Page#top|other]], [[rf:klystron]] and [[user>joe|Joe]].

  * one {{:tools:bed.png?200|The bed}}
    - inner [[https://b.example|web]]
  * <Wire.h> stays

===== Values =====
^ PV      ^ low ^ high ^
| S1:V    | 1   | [[x|a]] |
| :::     | both || 
<code bash bed.sh>
caput S1:V 3 **raw**
</code>

  indented code
    deeper

<nowiki>**not bold**</nowiki> and <WRAP tip>wrapped</WRAP>
"""


def test_dokuwiki_page(wiki: Wiki) -> None:
    wiki.write("data/media/tools/bed.png", png())
    wiki.write("data/pages/rf/klystron.txt", "words")
    wiki.write("data/pages/start.txt", "words")
    wiki.write("data/pages/tools/printer.txt", DOKUWIKI)
    page = wiki.records()["data/pages/tools/printer"]
    assert (page.title, page.fields["tags"]) == ("Printer", ["guide", "two words"])
    prose, table, code, indented, end = page.parts
    assert prose.text.split("\n\n")[0] == (
        "Heat the bed to 60 °C, M140 [see the sheet], at https://a.example/x//y. "
        "See the start, other, klystron and Joe."
    )
    assert "- one The bed\n  1. inner web\n- <Wire.h> stays" in prose.text
    assert table.text == "| PV | low | high |\n| --- | --- | --- |\n| S1:V | 1 | a |\n| S1:V | both |  |"
    assert (code.kind, code.text) == ("code", "caput S1:V 3 **raw**")
    assert (indented.kind, indented.text) == ("code", "indented code\n  deeper")
    assert end.text == "**not bold** and wrapped"
    assert {
        ("wiki", "data/pages/start"),
        ("wiki", "data/pages/tools/other_page"),
        ("wiki", "data/pages/rf/klystron"),
        ("url", "https://a.example/x//y"),
        ("url", "https://b.example"),
    } <= targets(page)
    assert [a.name for a in page.attachments] == ["bed.png"]


MEDIAWIKI = """\
{{Infobox Klystron
| name = K3
| power = 1.2 MW
| sector = [[Sector 40]]
}}
'''Klystron 3''' is in [[sector 40|the hall]] &mdash; see [https://a.example the manual].<ref>Smith 2020</ref>

== Reset ==
# Open [[File:Panel one.png|thumb|200px|The ''panel'']]
## wait {{val|5|s}}
* [[#Limits]]
{| class="wikitable"
|+ Limits
! PV !! low !! high
|-
| rowspan="2" | S2:V || 3 || 4
|-
| 5 || 6
|}
<syntaxhighlight lang="bash">
caput S1:V 3 # [[no link]]
</syntaxhighlight>
<nowiki>[[raw]]</nowiki> end
[[Category:RF systems]]
"""


def test_mediawiki_page(wiki: Wiki) -> None:
    wiki.write("images/Panel_one.png", png())
    wiki.write("Sector_40.wiki", "words")
    wiki.write("K3.wiki", MEDIAWIKI)
    page = wiki.records()["K3"]
    assert page.fields == {"tags": ["RF systems"]}
    infobox, lead, steps, table, code, end = page.parts
    assert infobox.title == "Infobox Klystron"
    assert infobox.text.split("\n")[2:] == ["| power | 1.2 MW |", "| sector | Sector 40 |"]
    assert lead.text == "Klystron 3 is in the hall — see the manual. [Smith 2020]"
    assert steps.text == "1. Open The panel\n   1. wait val: 5, s\n\n- #Limits"
    assert (table.title, table.text) == (
        "Limits",
        "| PV | low | high |\n| --- | --- | --- |\n| S2:V | 3 | 4 |\n| S2:V | 5 | 6 |",
    )
    assert (code.kind, code.text) == ("code", "caput S1:V 3 # [[no link]]")
    assert end.text == "[[raw]] end"
    assert {("wiki", "Sector_40"), ("url", "https://a.example")} <= targets(page)
    assert [a.name for a in page.attachments] == ["Panel_one.png"]


def test_redirects_lead_to_their_page(wiki: Wiki) -> None:
    wiki.write("Old_name.mediawiki", "#REDIRECT [[New name]]")
    wiki.write("New_name.mediawiki", "words")
    wiki.write("pages/old.txt", "~~REDIRECT>rf:new~~")
    found = wiki.records()
    assert targets(found["Old_name"]) == {("wiki", "New_name")}
    assert found["Old_name"].fields["redirect_to"] == "New name"
    assert targets(found["pages/old"]) == {("wiki", "pages/rf/new")}


def test_two_pages_of_one_name_have_ids_of_their_own(wiki: Wiki) -> None:
    wiki.write("a.html", "<p>html form</p>")
    assert set(wiki.records()) == {"a"}
    wiki.write("a.md", "markdown form")
    changes = wiki.changes()
    assert {key: record.parts[0].text for key, record in records(changes).items()} == {
        "a": "markdown form",
        "a.html": "html form",
    }
    (wiki.root / "a.md").unlink()
    changes = wiki.changes()
    assert set(records(changes)) == {"a"}
    assert Complete("a") in changes


def test_a_changed_picture_reaches_its_page(wiki: Wiki) -> None:
    wiki.write("p.md", "![panel](panel.png)")
    wiki.write("panel.png", png())
    before = wiki.records()["p"].attachments[0].sha256
    assert wiki.changes() == []
    wiki.write("panel.png", png(color=(1, 2, 3)))
    assert wiki.records()["p"].attachments[0].sha256 != before


def test_nothing_outside_the_wiki_is_attached(wiki: Wiki, tmp_path: Path) -> None:
    (tmp_path / "outside.png").write_bytes(png())
    (wiki.root / "link.png").symlink_to(tmp_path / "outside.png")
    wiki.write("p.md", f"![a](../outside.png) ![b]({tmp_path}/outside.png) ![c](link.png) [d](../../etc/passwd)")
    page = wiki.records()["p"]
    assert not page.attachments
    assert not any(kind == "wiki" for kind, _ in targets(page))


def test_unreadable_page_is_a_failure_and_the_others_go_on(wiki: Wiki) -> None:
    wiki.write("bad.md", b"\x00\x01\x02binary")
    wiki.write("empty.md", " \n")
    wiki.write("good.md", "words")
    changes = wiki.changes()
    assert set(records(changes)) == {"good"}
    assert {change.unit for change in changes if isinstance(change, Failure)} == {"bad", "empty"}
    assert [change for change in changes if isinstance(change, Complete)] == [Complete("good")]


MARKUP = st.text(st.sampled_from("=*'[]{}|^<>/\\:;#-~!()`_ \n\tabcé1."), max_size=200)


@settings(max_examples=150, deadline=None)
@given(MARKUP)
def test_no_markup_stops_a_reader(text: str) -> None:
    for to_html in (lambda page: dokuwiki_to_html(page).html, lambda page: mediawiki_to_html(page).html):
        html = to_html(text)
        assert not any("\ue0f0" <= char <= "\ue0ff" for char in html), "no mark stays behind"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("abcdefgh ", min_size=1, max_size=12).map(str.strip).filter(bool), min_size=1, max_size=5))
def test_words_survive_every_markup(words: list[str]) -> None:
    text = "\n\n".join(words)
    for html in (dokuwiki_to_html(text).html, mediawiki_to_html(text).html, rest_to_html(text)):
        assert all(word in html for word in words)


REAL = (
    "aps_2bm_docs/docs/source/procedures",
    "dokuwiki/data/pages/poradniki",
)


def test_real_pages(shared: Path, wiki: Wiki) -> None:
    procedures, guides = (records(wiki.changes(shared / "wiki" / folder)) for folder in REAL)
    files = sum(path.is_file() for path in (shared / "wiki" / REAL[0]).rglob("*"))
    assert len(procedures) == files > 10
    beam = procedures["item_003"]
    assert beam.title == "Enable beamline for beam"
    assert {"Devices", "Preconditions", "Steps"} <= {part.title for part in beam.parts}
    assert ("process_variable", "S02BM-PSS:StaA:SecureM") in targets(beam)
    assert ("wiki", "item_002") in targets(beam)
    printer = guides["drukarka_3d"]
    assert (printer.title, printer.fields["tags"]) == ("Drukarka 3D Gimili XL", ["poradnik", "sprzet"])
    assert any(part.kind == "table" and "120mm x 120mm x 100mm" in part.text for part in printer.parts)


@pytest.mark.slow
def test_every_real_page_becomes_a_record(shared: Path, wiki: Wiki) -> None:
    for folder, count in (("aps_2bm_docs", 137), ("dokuwiki", 149)):
        changes = wiki.changes(shared / "wiki" / folder)
        assert Counter(type(change).__name__ for change in changes if not isinstance(change, Complete)) == {
            "Upsert": count
        }
        known = records(changes)
        links = [target for record in known.values() for kind, target in targets(record) if kind == "wiki"]
        assert sum(target in known for target in links) > 0.75 * len(links)
        wiki.cursor = None
