"""What a page of a MediaWiki becomes: titles, links, content models, and the pictures that it shows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aps_rag_pipeline.demo.live.mediawiki import Server
from aps_rag_pipeline.demo.live.wiki_store import Revision, WikiStore
from aps_rag_pipeline.records import Link
from aps_rag_pipeline.sources.base import Ignored, Upsert
from tests.documents import png
from tests.live_wikis import Altered, Live, live, text_of

API = "/w/api.php"
BODIES = r"prop=revisions"


@pytest.fixture
def store() -> WikiStore:
    return WikiStore()


@pytest.fixture
def app(store: WikiStore) -> Altered:
    return Altered(Server(store))


@pytest.fixture
def wiki(tmp_path: Path, app: Altered) -> Iterator[Live]:
    with live(tmp_path, app, API, form="mediawiki") as made:
        yield made


def test_a_record_says_what_the_wiki_knows(wiki: Live, store: WikiStore) -> None:
    store.now = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)
    store.edit("Klystron power supply", "== Notes ==\nSee [[crowbar]] and [[/Log]].\n[[Category:RF]]", user="Kavya Rao")
    store.edit("Crowbar", "= Crowbar of the RF =\nIt fires.\n== Then ==\nCall.")
    wiki.sync()
    record = wiki.records["Klystron_power_supply"]
    assert (record.title, record.author, record.modified_at) == ("Klystron power supply", "Kavya Rao", store.now)
    assert record.url == f"{wiki.server.url}/wiki/Klystron_power_supply"
    assert record.fields == {"tags": ["RF"]}
    assert record.links == (Link("wiki", "Crowbar", "crowbar"), Link("wiki", "Klystron_power_supply/Log", "/Log"))
    assert record.access == ("public",)
    assert (wiki.records["Crowbar"].title, wiki.records["Crowbar"].author) == ("Crowbar of the RF", "")


def test_a_picture_is_fetched_once_and_again_when_it_changes(wiki: Live, store: WikiStore) -> None:
    store.edit("Page", "Before [[File:scope trace.png|thumb|The trace]] after [[File:Nowhere.png]].")
    store.upload("Scope trace.png", png())
    wiki.sync()
    (attachment,) = wiki.records["Page"].attachments
    assert (attachment.name, attachment.media_type) == ("Scope_trace.png", "image/png")
    assert wiki.context.blobs.get(attachment.sha256) == png()
    assert len(wiki.server.asked("/images/")) == 1
    store.edit("Page", store.find("Page").latest.text + " More.")
    wiki.sync()
    assert wiki.server.asked("/images/") == []
    store.upload("Scope trace.png", png() + b"\0")
    assert len([c for c in wiki.sync() if isinstance(c, Upsert)]) == 1, "the page's own revision is the same"
    assert wiki.context.blobs.get(wiki.records["Page"].attachments[0].sha256) == png() + b"\0"
    assert wiki.sync() == []


@pytest.mark.parametrize("fault", [{"kind": "status"}, {"kind": "html"}, {"kind": "status", "status": 404}])
def test_a_picture_that_cannot_be_had_costs_no_page(wiki: Live, store: WikiStore, fault: dict) -> None:
    page = store.edit("Page", "Before [[File:Scope.png]] after.")
    store.upload("Scope.png", png())
    wiki.server.fail(path="/images/", times=-1, **fault)
    (failure,) = wiki.failures()
    assert failure.unit == str(page.id) != failure.item
    assert (failure.record_id, failure.permanent) == ("Page", False)
    assert "Before" in text_of(wiki.records["Page"])
    assert wiki.records["Page"].attachments == ()
    wiki.server.faults.clear()
    assert wiki.failures() == []
    assert len(wiki.records["Page"].attachments) == 1
    assert wiki.sync() == []


def test_pictures_can_be_left_out(wiki: Live, store: WikiStore) -> None:
    store.edit("Page", "[[File:Scope.png]] text")
    store.upload("Scope.png", png())
    wiki.again(options={"pictures": False})
    wiki.sync()
    assert wiki.records["Page"].attachments == ()
    assert wiki.server.asked("images|allfileusages") == []


def test_a_file_of_a_shared_repository_is_found(wiki: Live, store: WikiStore, app: Altered) -> None:
    store.edit("Page", "[[File:Shared.png]] text")
    store.upload("Shared.png", png())

    def not_listed(request, answer):
        if "allimages" in answer.get("query", {}):
            answer["query"]["allimages"] = []
        return answer

    app.change = not_listed
    wiki.sync()
    assert [a.name for a in wiki.records["Page"].attachments] == ["Shared.png"]


def test_content_models_are_markups_or_no_pages(wiki: Live, store: WikiStore) -> None:
    store.edit("Text", "plain & *simple*", model="text")
    store.edit("Marked", "# Marked\n\n| a | b |\n| - | - |\n| 1 | 2 |", model="markdown")
    store.edit("Doku", "====== Doku ======\n\n**bold** words", model="dokuwiki")
    store.edit("Creole", "====== Creole ======\n\n**bold** creole", model="creole")
    store.edit("Code", "return {}", model="Scribunto")
    found = wiki.sync()
    assert {c.reason.partition(":")[0] for c in found if isinstance(c, Ignored)} == {
        "content model creole",
        "content model Scribunto",
    }
    assert sorted(wiki.records) == ["Doku", "Marked", "Text"]
    assert [part.kind for part in wiki.records["Marked"].parts] == ["table"]
    assert text_of(wiki.records["Text"]) == "plain & *simple*"
    assert text_of(wiki.records["Doku"]) == "bold words"
    wiki.cursor = None
    wiki.again(options={"markups": {"creole": "dokuwiki"}})
    wiki.sync()
    assert text_of(wiki.records["Creole"]) == "bold creole"


def test_hidden_text_is_not_kept(wiki: Live, store: WikiStore) -> None:
    page = store.edit("Page", "a password")
    store.edit("Stay", "stays")
    wiki.sync()
    store.edit("Page", "a password again")
    last = page.revisions.pop()
    page.revisions.append(Revision(last.id, last.text, last.user, last.time, hidden=True))
    wiki.sync()
    assert list(wiki.records) == ["Stay"]


def test_front_matter_and_other_namespaces(wiki: Live, store: WikiStore) -> None:
    text = '---\ntitle: "Ours"\naccess: [ops]\ndate: 2025-10-20T07:09:00-05:00\n---\n# Ours\n\nWords.'
    store.edit("Help:Front", text, model="markdown")
    store.edit("Main", "main text")
    wiki.again(options={"namespaces": [0, 12]})
    wiki.sync()
    record = wiki.records["Help:Front"]
    assert (record.title, record.access, record.created_at) == (
        "Ours",
        ("ops",),
        datetime(2025, 10, 20, 12, 9, tzinfo=UTC),
    )
    wiki.again(options={"namespaces": [0]})
    wiki.sync()
    assert list(wiki.records) == ["Main"]


def test_a_wiki_from_before_slots(wiki: Live, store: WikiStore, app: Altered) -> None:
    store.edit("Page", "old software")

    def flatten(request, answer):
        answer.pop("batchcomplete", None)
        for page in answer.get("query", {}).get("pages", {}).values():
            for revision in page.get("revisions", ()):
                revision |= revision.pop("slots")["main"]
        return {**answer, "warnings": {"revisions": {"*": "Unrecognized parameter: rvslots"}}}

    app.change = flatten
    wiki.sync()
    assert text_of(wiki.records["Page"]) == "old software"
