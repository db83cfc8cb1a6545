"""A Confluence behind its REST interface: storage format, paging, what moves without a new version, restrictions."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from aps_rag_pipeline.content.confluence import storage_to_html
from aps_rag_pipeline.content.front_matter import split_front_matter
from aps_rag_pipeline.content.pages import markdown_to_html
from aps_rag_pipeline.demo.write import write
from aps_rag_pipeline.records import Link, Record
from aps_rag_pipeline.settings import Credentials, Feed, SecretPlace
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Complete, FeedError, Upsert
from tests.documents import png
from tests.live_cases.confluence import Confluence
from tests.live_wikis import Altered, Live, live, text_of

BODY = r"/rest/api/content/\d+"

STORAGE = """
<h1>Overview</h1>
<p>Caf&eacute; &amp; kicker&nbsp;notes, see <ac:link><ri:page ri:content-title="Crowbar &amp; 50% #2" />
<ac:plain-text-link-body><![CDATA[the <crowbar> page]]></ac:plain-text-link-body></ac:link>,
<ac:link><ri:page ri:space-key="RF" ri:content-title="Klystrons" /></ac:link> and
<ac:link><ri:attachment ri:filename="manual.pdf" /></ac:link>; ask
<ac:link><ri:user ri:userkey="8a7f808" /></ac:link>.</p>
<ac:structured-macro ac:name="toc" />
<ac:structured-macro ac:name="info"><ac:parameter ac:name="title">Mind this</ac:parameter>
<ac:rich-text-body><p>Never reset a mismatch.</p></ac:rich-text-body></ac:structured-macro>
<h2>Script</h2>
<ac:structured-macro ac:name="code"><ac:parameter ac:name="language">python</ac:parameter>
<ac:plain-text-body><![CDATA[if a < b && c:
    caput("S:X", 1)  # &nbsp; stays]]></ac:plain-text-body></ac:structured-macro>
<table><tbody><tr><th>PV</th><th>Value</th></tr><tr><td>S-DCCT</td><td>
<ac:structured-macro ac:name="status"><ac:parameter ac:name="title">IN WORK</ac:parameter>
</ac:structured-macro></td></tr>
</tbody></table>
<ac:task-list><ac:task><ac:task-id>1</ac:task-id><ac:task-status>complete</ac:task-status>
<ac:task-body>Sign the keys out</ac:task-body></ac:task></ac:task-list>
<p><ac:image ac:alt="Trace"><ri:attachment ri:filename="scope trace.png" /></ac:image></p>
<ac:structured-macro ac:name="jira"><ac:parameter ac:name="server">J</ac:parameter>
<ac:parameter ac:name="key">OPS-77</ac:parameter></ac:structured-macro>
"""


@pytest.fixture
def server() -> Confluence:
    return Confluence(most=3)


@pytest.fixture
def app(server: Confluence) -> Altered:
    return Altered(server)


@pytest.fixture
def wiki(tmp_path: Path, app: Altered) -> Iterator[Live]:
    with live(tmp_path, app, "/confluence", form="confluence") as made:
        yield made


def upserts(found: list) -> list[str]:
    return [change.record.id for change in found if isinstance(change, Upsert)]


def test_the_storage_format_becomes_parts_links_and_pictures(wiki: Live, server: Confluence) -> None:
    page = server.page("OPS", "Kicker notes", STORAGE, labels=["rf", "kicker"])
    server.attach(page, "scope trace.png", png())
    assert wiki.failures() == []
    record = wiki.records["OPS/Kicker_notes"]
    layout = [(part.kind, part.title, " ".join(part.text.split())) for part in record.parts]
    assert [kind for kind, *_ in layout] == ["prose", "code", "table", "prose"]
    prose = layout[0][2]
    assert "Café & kicker notes, see the <crowbar> page, Klystrons and manual.pdf; ask @Kavya Rao." in prose
    assert "Mind this Never reset a mismatch." in prose
    assert record.parts[1].text == 'if a < b && c:\n    caput("S:X", 1)  # &nbsp; stays'
    assert "| S-DCCT | IN WORK |" in record.parts[2].text
    assert "[x] Sign the keys out" in layout[3][2]
    assert "OPS-77" in layout[3][2]
    assert record.links[:2] == (
        Link("wiki", "OPS/Crowbar_&_50%_#2", "the <crowbar> page"),
        Link("wiki", "RF/Klystrons", "Klystrons"),
    )
    assert record.links[2].kind == "file"
    assert record.links[2].target.endswith("manual.pdf")
    assert [a.name for a in record.attachments] == ["scope trace.png"]
    assert wiki.context.blobs.get(record.attachments[0].sha256) == png()


def test_a_record_says_what_confluence_knows(wiki: Live, server: Confluence) -> None:
    parent = server.page("OPS", "Home", "<p>home</p>")
    server.page("OPS", "Child page", "<h1>Another heading</h1><p>words</p>", parent=parent.id, labels=["rf"])
    wiki.sync()
    record = wiki.records["OPS/Child_page"]
    assert (record.title, record.author) == ("Child page", "Nils Ingram")
    assert record.created_at == datetime(2025, 1, 2, 9, 4, 5, tzinfo=UTC)
    assert record.modified_at == server.now
    assert record.url == "https://wiki.example/confluence/display/OPS/Child+page"
    assert record.fields == {"tags": ["rf"]}
    assert record.links == (Link("parent", "OPS/Home"),)
    assert record.access == ("public",)


def test_the_demos_pages_are_the_records_of_its_files(tmp_path: Path) -> None:
    write(tmp_path / "demo", seed=7, records=300)
    folder = tmp_path / "demo/feeds/wiki"
    server = Confluence()
    with live(tmp_path, server, "/confluence", form="confluence") as wiki:
        files = Feed(name="wiki", source="wiki", location=folder, include=("*.md",))
        found = open_source(files, wiki.context).changes(None)
        records = [change.record for change in found if isinstance(change, Upsert)]
        # Confluence has no name of a page beside its title.
        wanted = {r.id: r for r in records if r.id.partition("/")[2] == r.title.replace(" ", "_")}
        for record_id, record in wanted.items():
            _, body = split_front_matter((folder / f"{record_id}.md").read_text())
            groups = [label for label in record.access if label != "public"]
            server.page(record_id.partition("/")[0], record.title, markdown_to_html(body), groups=groups)
        wiki.sync()
        assert len(wanted) > 4
        assert {record_id: carried(record) for record_id, record in wiki.records.items()} == {
            record_id: carried(record) for record_id, record in wanted.items()
        }


def carried(record: Record) -> Record:
    """All but what a wiki states of its own: people, times, addresses."""
    return structs.replace(record, author="", created_at=None, modified_at=None, url="")


@pytest.mark.parametrize(
    "text", ["", "no markup < at all & more", "<p>open <b>never closed", "<ac:link><ri:page/>", "<p>&bogus;</p>"]
)
def test_damaged_storage_keeps_its_words(text: str) -> None:
    html = storage_to_html(text).html
    assert all(word in html for word in ("open", "closed") if word in text)


@given(st.integers(0, len(STORAGE)), st.integers(0, len(STORAGE)), st.text(max_size=20))
def test_no_cut_breaks_the_reader(start: int, end: int, between: str) -> None:
    assert isinstance(storage_to_html(STORAGE[:start] + between + STORAGE[end:]).html, str)


def test_hostile_storage_costs_no_time() -> None:
    for text in ("<![CDATA[" * 100_000, "<p>" * 100_000, "<ri:user " * 100_000, "&amp;" * 100_000):
        assert isinstance(storage_to_html(text).html, str)


def test_paging_follows_the_servers_own_link(wiki: Live, server: Confluence) -> None:
    pages = [server.page("OPS", f"Page {number}", f"<p>text {number}</p>") for number in range(14)]
    server.page("RF", "Elsewhere", "<p>rf</p>")
    server.page("~kavya", "Mine", "<p>personal</p>")
    server.page("OPS", "News", "<p>blog</p>", kind="blogpost")
    server.hidden = {pages[1].id, pages[2].id, pages[3].id}
    wiki.sync()
    assert len(wiki.records) == 13
    assert {"RF/Elsewhere", "OPS/News", "OPS/Page_13"} <= wiki.records.keys()
    assert wiki.sync() == []
    assert wiki.server.asked(BODY) == []
    wiki.again(options={"spaces": ["OPS"], "kinds": ["page"]})
    wiki.sync()
    assert len(wiki.records) == 11


def test_what_moves_without_a_new_version_is_seen(wiki: Live, server: Confluence) -> None:
    home = server.page("OPS", "Home", "<p>home</p>")
    page = server.page("OPS", "Old", "<p>text</p>")
    wiki.sync()
    page.title = "New"
    wiki.sync()
    assert sorted(wiki.records) == ["OPS/Home", "OPS/New"]
    assert wiki.records["OPS/New"].fields["former_ids"] == ["OPS/Old"]
    page.parent = home.id
    assert upserts(wiki.sync()) == ["OPS/New"]
    page.labels.append("rf")
    assert upserts(wiki.sync()) == ["OPS/New"]
    assert wiki.records["OPS/New"].fields["tags"] == ["rf"]
    home.title = "Start"
    assert sorted(upserts(wiki.sync())) == ["OPS/New", "OPS/Start"]
    assert wiki.records["OPS/New"].links == (Link("parent", "OPS/Start"),)
    page.space, page.parent = "RF", 0
    wiki.sync()
    assert sorted(wiki.records) == ["OPS/Start", "RF/New"]
    assert wiki.records["RF/New"].fields["former_ids"] == ["OPS/New", "OPS/Old"]
    assert wiki.sync() == []
    seen = wiki.source().fingerprint()
    server.page("OPS", "Old", "<p>another page of an old name</p>")
    wiki.sync()
    assert wiki.records["RF/New"].fields["former_ids"] == ["OPS/New"]
    wiki.sync()
    assert wiki.sync() == []
    assert wiki.source().fingerprint() != seen


def test_trash_drafts_and_archived_pages_are_no_records(wiki: Live, server: Confluence) -> None:
    server.page("OPS", "Stay", "<p>stays</p>")
    page = server.page("OPS", "Page", "<p>before</p>")
    server.page("OPS", "Draft", "<p>draft</p>", status="draft")
    wiki.sync()
    assert sorted(wiki.records) == ["OPS/Page", "OPS/Stay"]
    for status in ("trashed", "archived"):
        page.status = status
        assert wiki.sync() == [Complete(f"OPS/{page.id}")]
        assert sorted(wiki.records) == ["OPS/Stay"]
        page.status = "current"
        wiki.sync()
        assert text_of(wiki.records["OPS/Page"]) == "before"


def test_restrictions_are_labels_and_are_inherited(wiki: Live, server: Confluence) -> None:
    top = server.page("OPS", "Top", "<p>top</p>", groups=["ops", "rf"])
    below = server.page("OPS", "Below", "<p>below</p>", parent=top.id)
    server.page("OPS", "Deep", "<p>deep</p>", parent=below.id, groups=["rf", "safety"])
    server.page("OPS", "Personal", "<p>mine</p>", users=["kavya"])
    server.page("OPS", "Open", "<p>open</p>")
    wiki.again(access=("staff",), options={"groups": {"rf": "rf-group"}})
    wiki.sync()
    access = {record_id.removeprefix("OPS/"): record.access for record_id, record in wiki.records.items()}
    inherited = ("ops", "rf-group")
    assert access == {"Top": inherited, "Below": inherited, "Deep": ("rf-group",), "Personal": (), "Open": ("staff",)}
    top.groups = []
    assert sorted(upserts(wiki.sync())) == ["OPS/Below", "OPS/Deep", "OPS/Top"]
    assert wiki.records["OPS/Below"].access == ("staff",)
    wiki.again(options={"restrictions": False, "labels": {"secret": "safety"}})
    server.page("OPS", "Labelled", "<p>x</p>", labels=["secret", "other"])
    wiki.sync()
    assert wiki.records["OPS/Labelled"].access == ("safety",)
    assert wiki.records["OPS/Personal"].access == ("staff",)


def test_a_server_that_tells_no_restrictions_is_not_read_as_if_there_were_none(
    wiki: Live, server: Confluence, app: Altered
) -> None:
    server.page("OPS", "Page", "<p>text</p>")

    def silent(request, answer):
        for page in answer.get("results", ()):
            page.pop("restrictions", None)
        return answer

    app.change = silent
    with pytest.raises(FeedError, match=r"does not say who may view Page; with options\.restrictions false"):
        wiki.sync()


def test_pages_that_this_reader_may_not_see(wiki: Live, server: Confluence) -> None:
    pages = [server.page("OPS", f"Page {number}", f"<p>text {number}</p>") for number in range(3)]
    server.forbidden = {pages[0].id}
    (failure,) = wiki.failures()
    assert (failure.unit, failure.permanent) == (f"OPS/{pages[0].id}", False)
    assert "status 403" in failure.reason
    assert len(wiki.records) == 2
    server.forbidden = set()
    wiki.sync()
    assert len(wiki.records) == 3
    server.hidden = {pages[1].id}
    assert wiki.sync() == [Complete(f"OPS/{pages[1].id}")]
    server.forbidden = server.hidden = {pages[1].id, pages[2].id}
    wiki.sync()
    assert sorted(wiki.records) == ["OPS/Page_0"]


def test_a_new_version_of_an_attachment_is_seen(wiki: Live, server: Confluence) -> None:
    other = server.page("OPS", "Other", "<p>other</p>")
    image = '<ac:image><ri:attachment ri:filename="x.png">{}</ri:attachment></ac:image>'
    page = server.page("OPS", "Page", "<p>text</p>" + image.format('<ri:page ri:content-title="Other" />'))
    server.attach(other, "x.png", png())
    wiki.sync()
    assert len(wiki.records["OPS/Page"].attachments) == 1
    assert len(wiki.server.asked("/download/")) == 1
    server.page("OPS", "Page", "<p>edited</p>" + image.format(""))
    wiki.sync()
    assert (wiki.records["OPS/Page"].attachments, wiki.server.asked("/download/")) == ((), [])
    server.attach(page, "x.png", png())
    server.attach(page, "x.png", png() + b"\0")
    wiki.sync()
    assert wiki.context.blobs.get(wiki.records["OPS/Page"].attachments[0].sha256) == png() + b"\0"
    wiki.server.fail("status", path="/download/", times=-1)
    server.attach(page, "x.png", png() + b"\0\0")
    (failure,) = wiki.failures()
    assert (failure.record_id, failure.permanent) == ("OPS/Page", False)
    assert failure.item != failure.unit
    wiki.server.faults.clear()
    assert wiki.failures() == []
    assert len(wiki.records["OPS/Page"].attachments) == 1


def test_a_cloud_site_gives_the_same_by_its_search(tmp_path: Path) -> None:
    server = Confluence(cloud=True, most=2)
    token = tmp_path / "token"
    token.write_text("api-token-1")
    server.authorization = "Basic " + b64encode(b"ops@aps.anl.gov:api-token-1").decode()
    signed = Credentials(user="ops@aps.anl.gov", password=SecretPlace(file=token))
    for number in range(5):
        server.page(
            "OPS", f"Page {number}", f"<p>text {number} <ac:link><ri:user ri:account-id='8a7f808' /></ac:link></p>"
        )
    server.page("~kavya", "Mine", "<p>personal</p>")
    options = {"cloud": True}
    with live(tmp_path, server, "", form="confluence", options=options, credentials=signed) as wiki:
        wiki.sync()
        assert sorted(wiki.records) == [f"OPS/Page_{number}" for number in range(5)]
        assert text_of(wiki.records["OPS/Page_4"]) == "text 4 @Kavya Rao"
        assert wiki.sync() == []
        assert all(request.startswith("GET /wiki/rest/api/") for request in wiki.server.requests)
        page = server.find("OPS", "Page 1")
        page.status = "trashed"
        assert wiki.sync() == [Complete(f"OPS/{page.id}")]
        wiki.again(credentials=Credentials())
        with pytest.raises(FeedError, match=r"status 401.*`credentials`"):
            wiki.sync()


@pytest.mark.parametrize("named", ["user", "password", "user and a token"])
def test_half_a_sign_in_asks_nothing(wiki: Live, server: Confluence, tmp_path: Path, named: str) -> None:
    (tmp_path / "pat").write_text("pat-123")
    place = SecretPlace(file=tmp_path / "pat")
    half = {
        "user": Credentials(user="ops"),
        "password": Credentials(password=place),
        "user and a token": Credentials(user="ops", token=place),
    }[named]
    wiki.again(credentials=half)
    asked = len(wiki.server.requests)
    with pytest.raises(FeedError, match=r"feed wiki: credentials name .*leave"):
        wiki.sync()
    assert len(wiki.server.requests) == asked


def test_a_token_signs_in_and_stays_secret(wiki: Live, server: Confluence, tmp_path: Path) -> None:
    server.page("OPS", "Page", "<p>text</p>")
    server.authorization = "Bearer pat-123"
    (tmp_path / "pat").write_text("pat-123\n")
    wiki.again(credentials=Credentials(token=SecretPlace(file=tmp_path / "pat")))
    wiki.sync()
    assert list(wiki.records) == ["OPS/Page"]
    wiki.again(credentials=Credentials(token=SecretPlace(file=tmp_path / "none")))
    with pytest.raises(FeedError, match=r"feed wiki: credentials: .*cannot be read"):
        wiki.sync()
    wiki.again(credentials=Credentials(token=SecretPlace(file=tmp_path / "pat")))
    server.authorization = "Bearer another"
    with pytest.raises(FeedError, match="status 401") as told:
        wiki.sync()
    assert "pat-123" not in str(told.value) + repr(wiki.cursor)


def test_a_space_that_is_refused_costs_what_lies_in_it(wiki: Live, server: Confluence) -> None:
    server.page("OPS", "Page", "<p>text</p>")
    server.page("RF", "Klystrons", "<p>text</p>")
    wiki.again(options={"spaces": ["OPS", "RF"]})
    wiki.sync()
    server.page("OPS", "Page", "<p>edited</p>")
    wiki.server.fail("status", status=403, path="spaceKey=RF", times=-1)
    (failure,) = wiki.failures()
    assert failure.unit == "RF"
    assert (sorted(wiki.records), text_of(wiki.records["OPS/Page"])) == (["OPS/Page", "RF/Klystrons"], "edited")
    wiki.again(options={"spaces": ["NOPE"]})
    with pytest.raises(FeedError, match="No space with key : NOPE"):
        wiki.sync()


def test_a_proxys_404_takes_no_page_away(wiki: Live, server: Confluence) -> None:
    for number in range(2):
        server.page("OPS", f"Page {number}", "<p>text</p>")
    wiki.sync()
    server.page("OPS", "Page 0", "<p>edited</p>")
    wiki.server.fail("status", status=404, body=b"<html>no route</html>", path=BODY, times=-1)
    (failure,) = wiki.failures()
    assert "is not there; is `url`" in failure.reason
    assert len(wiki.records) == 2


def test_titles_that_give_one_id_are_two_records(wiki: Live, server: Confluence) -> None:
    first = server.page("OPS", "A B", "<p>first</p>")
    second = server.page("OPS", "A_B", "<p>second</p>")
    wiki.sync()
    assert {record_id: text_of(record) for record_id, record in wiki.records.items()} == {
        "OPS/A_B": "first",
        f"OPS/A_B~{second.id}": "second",
    }
    first.status = "trashed"
    wiki.sync()
    assert {record_id: text_of(record) for record_id, record in wiki.records.items()} == {"OPS/A_B": "second"}


def test_a_page_without_id_and_one_that_fails_for_ever(wiki: Live, server: Confluence, app: Altered) -> None:
    pages = [server.page("OPS", f"Page {number}", f"<p>text {number}</p>") for number in range(3)]

    def spoil(request, answer):
        for page in answer.get("results", ()):
            if page.get("id") == str(pages[0].id):
                del page["id"]
        if request.path.endswith(f"/{pages[1].id}"):
            del answer["body"]
        return answer

    app.change = spoil
    for _ in range(2):
        failures = {failure.unit: failure.reason for failure in wiki.failures()}
        assert failures == {
            "OPS/Page 0": "it is listed without its id, space, title or version",
            f"OPS/{pages[1].id}": f"{wiki.feed.url} Page 1: it came without its text",
        }
    app.change = lambda _, answer: answer
    wiki.sync()
    assert len(wiki.records) == 3


def test_wrong_options_and_addresses_say_so(wiki: Live, server: Confluence) -> None:
    server.page("OPS", "Page", "<p>text</p>")
    wiki.again(options={"space": "OPS"})
    with pytest.raises(FeedError, match=r"options\.space: .*there are: cloud, spaces"):
        wiki.sync()
    wiki.again(options={}, url=wiki.server.url + "/nowhere")
    with pytest.raises(FeedError, match="is `url` the address of a Confluence"):
        wiki.sync()


def test_a_page_that_the_clouds_index_leaves_out_is_asked_for_itself(tmp_path: Path) -> None:
    server = Confluence(cloud=True)
    pages = [server.page("OPS", f"Page {number}", f"<p>text {number}</p>") for number in range(4)]
    pages.append(server.page("OPS", "News", "<p>blog</p>", kind="blogpost"))
    with live(tmp_path, server, "", form="confluence", options={"cloud": True}) as wiki:
        wiki.sync()
        server.unindexed = {pages[0].id, pages[4].id}
        failures = wiki.failures()
        assert {failure.unit for failure in failures} == {f"OPS/{pages[0].id}", f"OPS/{pages[4].id}"}
        assert all("the search does not find it" in failure.reason for failure in failures)
        assert len(wiki.records) == 5
        pages[0].status = "archived"
        del server.pages[pages[4].id]
        wiki.sync()
        assert sorted(wiki.records) == ["OPS/Page_1", "OPS/Page_2", "OPS/Page_3"]


@pytest.mark.parametrize("status", [None, {}, [], 7, ""])
def test_a_status_that_says_nothing_takes_no_page_away(
    wiki: Live, server: Confluence, app: Altered, status: object
) -> None:
    server.page("OPS", "Page", "<p>text</p>")
    wiki.sync()
    server.page("OPS", "Page", "<p>edited</p>")
    app.change = lambda request, answer: {**answer, "status": status} if "results" not in answer else answer
    (failure,) = wiki.failures()
    assert "another answer" in failure.reason
    assert text_of(wiki.records["OPS/Page"]) == "text"


@pytest.mark.parametrize("kept", [True, False], ids=["the same page", "empty pages"])
def test_a_listing_without_an_end_is_an_outage(wiki: Live, server: Confluence, app: Altered, kept: bool) -> None:
    for number in range(3):
        server.page("OPS", f"Page {number}", "<p>text</p>")
    wiki.sync()
    cursors = iter(range(10_000))

    def endless(request, answer):
        if request.path.endswith("/rest/api/content"):
            answer["_links"]["next"] = f"/rest/api/content?spaceKey=OPS&type=page&cursor=at-0&again={next(cursors)}"
            answer["results"] = answer["results"] if kept else []
        return answer

    app.change = endless
    with pytest.raises(FeedError, match=r"rest/api/content has no end: \d items in 10\d replies"):
        wiki.sync()
    app.change = lambda _, answer: {**answer, "_links": None}
    with pytest.raises(FeedError, match="does not say whether there is more"):
        wiki.sync()


def test_long_stretches_that_are_hidden_end_no_listing(wiki: Live, server: Confluence) -> None:
    server.most = 1
    pages = [server.page("OPS", f"Page {number}", "<p>text</p>") for number in range(40)]
    server.hidden = {page.id for page in pages[1:39]}
    wiki.sync()
    assert sorted(wiki.records) == ["OPS/Page_0", "OPS/Page_39"]


@pytest.mark.parametrize("page", [b"<!DOCTYPE html><title>Sign in</title>", b"\n<html>Sign in</html>", b"Sign in"])
def test_a_sign_in_page_is_no_picture(wiki: Live, server: Confluence, page: bytes) -> None:
    image = '<ac:image><ri:attachment ri:filename="x.png" /></ac:image>'
    server.attach(server.page("OPS", "Page", "<p>text</p>" + image), "x.png", png())
    kind = {"Content-Type": "text/html" if page == b"Sign in" else "image/png"}
    wiki.server.fail("status", status=200, body=page, headers=kind, path="/download/", times=-1)
    (failure,) = wiki.failures()
    assert "a web page came in place of x.png" in failure.reason
    assert (failure.record_id, failure.permanent) == ("OPS/Page", False)
    assert text_of(wiki.records["OPS/Page"]) == "text"
    wiki.server.faults.clear()
    assert wiki.failures() == []
    (attached,) = wiki.records["OPS/Page"].attachments
    assert wiki.context.blobs.get(attached.sha256) == png()


def test_a_restriction_holds_while_the_text_cannot_be_read(wiki: Live, server: Confluence) -> None:
    page = server.page("OPS", "Page", "<p>text</p>")
    renamed = server.page("OPS", "Old", "<p>text</p>")
    wiki.again(access=("staff",))
    wiki.sync()
    for number in (page.id, renamed.id):
        wiki.server.fail("status", status=500, path=rf"/rest/api/content/{number}\b", times=-1)
    page.groups, renamed.groups, renamed.title = ["ops"], ["ops"], "New"
    for _ in range(2):
        assert {failure.unit for failure in wiki.failures()} == {f"OPS/{page.id}", f"OPS/{renamed.id}"}
        assert {record_id: record.access for record_id, record in wiki.records.items()} == {
            "OPS/Page": ("ops",),
            "OPS/Old": ("ops",),
        }
    page.groups = []
    due = frozenset({f"OPS/{page.id}"})
    wiki.sync(retry=due)
    assert wiki.records["OPS/Page"].access == ("ops",), "its text may name other labels"
    wiki.server.faults.clear()
    assert wiki.failures(retry=due) == []
    assert {record_id: record.access for record_id, record in wiki.records.items()} == {
        "OPS/Page": ("staff",),
        "OPS/New": ("ops",),
    }


def test_labels_of_a_page_reach_no_other_that_took_its_title(wiki: Live, server: Confluence) -> None:
    page = server.page("OPS", "Title", "<p>first</p>")
    wiki.again(access=("staff",))
    wiki.sync()
    wiki.server.fail("status", status=500, path=rf"/rest/api/content/{page.id}\b", times=-1)
    page.groups, page.title = ["ops"], "Moved"
    server.page("OPS", "Title", "<p>second</p>")
    for _ in range(2):
        wiki.sync()
        assert text_of(wiki.records["OPS/Title"]) == "second"
        assert wiki.records["OPS/Title"].access == ("staff",)


def test_pages_in_a_folder_of_the_cloud_are_not_open_for_want_of_a_word(tmp_path: Path) -> None:
    server = Confluence(cloud=True)
    folder = server.page("OPS", "Management only", "", kind="folder", groups=["management"])
    below = server.page("OPS", "Salaries", "<p>secret</p>", parent=folder.id)
    server.page("OPS", "Deep", "<p>deep</p>", parent=below.id, groups=["management", "ops"])
    server.page("OPS", "Open", "<p>open</p>")
    with live(tmp_path, server, "", form="confluence", options={"cloud": True}, access=("staff",)) as wiki:

        def access() -> dict[str, tuple[str, ...]]:
            return {record_id.removeprefix("OPS/"): record.access for record_id, record in wiki.records.items()}

        (failure,) = wiki.failures()
        assert (failure.unit, failure.permanent) == (f"folder {folder.id}", False)
        assert "Management only" in failure.place
        assert "options.open_folders" in failure.remedy
        assert access() == {"Salaries": (), "Deep": (), "Open": ("staff",)}
        assert len(wiki.server.asked("/restriction/")) == 1
        server.tells_folders = True
        assert wiki.failures() == []
        assert access() == {"Salaries": ("management",), "Deep": ("management",), "Open": ("staff",)}
        server.forbidden = {folder.id}
        (failure,) = wiki.failures()
        assert "404" in failure.reason
        assert access()["Salaries"] == ()
        server.forbidden = set()
        wiki.again(options={"cloud": True, "open_folders": True})
        folder.groups = []
        assert wiki.failures() == []
        assert access() == {"Salaries": ("staff",), "Deep": ("management", "ops"), "Open": ("staff",)}


_GONE = object()
_ODD_PLACES = (
    ("space",), ("version",), ("metadata",), ("restrictions",), ("restrictions", "read"), ("ancestors",), ("title",),
    ("restrictions", "read", "restrictions", "group", "results"), ("restrictions", "read", "restrictions", "user"),
    ("metadata", "labels", "results"),
)  # fmt: skip


@pytest.mark.parametrize("place", _ODD_PLACES, ids=".".join)
def test_one_odd_item_of_a_listing_costs_itself_alone(
    wiki: Live, server: Confluence, app: Altered, place: tuple[str, ...]
) -> None:
    pages = [server.page("OPS", f"Page {number}", f"<p>text {number}</p>", groups=["ops"]) for number in range(3)]
    below = server.page("OPS", "Below", "<p>below</p>", parent=pages[0].id)
    pages[0].title = "First"
    wiki.sync()
    pages[0].title = "Page 0"
    wiki.sync()
    held = dict(wiki.records)
    for title in ("Page 0", "Page 1"):
        server.page("OPS", title, "<p>edited</p>")
    for odd in (None, 7, "", _GONE):

        def spoil(request, answer, odd=odd):
            for page in answer.get("results", ()):
                if page.get("id") == str(pages[0].id) and "container" not in page:
                    at = page
                    for name in place[:-1]:
                        at = at[name]
                    at.pop(place[-1])
                    if odd is not _GONE:
                        at[place[-1]] = odd
            return answer

        app.change = spoil
        failures = {failure.unit for failure in wiki.failures()}
        if failures:
            assert f"OPS/{pages[0].id}" in failures
            assert failures <= {f"OPS/{pages[0].id}", f"OPS/{below.id}"}
            assert wiki.records["OPS/Page_0"] == held["OPS/Page_0"], odd
        assert failures or (odd is _GONE and place[0] in ("metadata", "ancestors")), odd
        assert wiki.records.keys() == held.keys(), odd
        assert text_of(wiki.records["OPS/Page_1"]) == "edited"
        assert wiki.records["OPS/Below"].access == ("ops",)
        app.change = lambda _, answer: answer
    wiki.sync()
    assert text_of(wiki.records["OPS/Page_0"]) == "edited"
    assert wiki.records["OPS/Page_0"].fields["former_ids"] == ["OPS/First"]


def test_a_group_without_a_name_opens_nothing(wiki: Live, server: Confluence, app: Altered) -> None:
    server.page("OPS", "Page", "<p>text</p>", groups=["ops"])

    def nameless(request, answer):
        for page in answer.get("results", ()):
            for group in (
                page.get("restrictions", {}).get("read", {}).get("restrictions", {}).get("group", {})["results"]
            ):
                group["name"] = None
        return answer

    app.change = lambda request, answer: nameless(request, answer) if request.path.endswith("content") else answer
    wiki.sync()
    assert wiki.records["OPS/Page"].access == ()


def test_halves_of_characters_and_missing_people_cost_nothing(wiki: Live, server: Confluence, app: Altered) -> None:
    server.page("OPS", "Page \ud83d", "<p>text \ud83d</p>", labels=["rf\ud83d"])
    server.page("OPS", "Other", "<p>text</p>")

    def orphan(request, answer):
        if "history" in answer:
            answer["history"]["createdBy"] = None
            answer["version"]["by"] = {"displayName": "\ud83d"}
        return answer

    app.change = orphan
    assert wiki.failures() == []
    assert {(record.title, record.author) for record in wiki.records.values()} == {("Page \ufffd", ""), ("Other", "")}


def test_a_space_that_is_refused_keeps_the_former_names_of_its_pages(wiki: Live, server: Confluence) -> None:
    page = server.page("OPS", "Old", "<p>text</p>")
    server.page("RF", "Klystrons", "<p>text</p>")
    wiki.sync()
    page.title = "New"
    wiki.sync()
    wiki.server.fail("status", status=403, path="spaceKey=OPS", times=2)
    wiki.sync()
    wiki.server.faults.clear()
    server.page("OPS", "New", "<p>edited</p>")
    wiki.sync()
    assert wiki.records["OPS/New"].fields["former_ids"] == ["OPS/Old"]
