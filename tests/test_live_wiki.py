"""A MediaWiki behind its API: continuation, batches, moves, redirects, uploads, refusals that come with status 200."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from werkzeug import Request, Response

from aps_rag_pipeline.demo.live.mediawiki import Server
from aps_rag_pipeline.demo.live.wiki_store import WikiStore
from aps_rag_pipeline.demo.write import write
from aps_rag_pipeline.settings import Credentials, Feed, SecretPlace
from aps_rag_pipeline.sources import open_source
from aps_rag_pipeline.sources.base import Complete, Failure, FeedError, Upsert
from tests.documents import png
from tests.live_wikis import Altered, Live, live, text_of
from tests.serving import serving

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


def test_the_demo_gives_the_records_of_its_files(tmp_path: Path) -> None:
    write(tmp_path / "demo", seed=7, records=300)
    folder = tmp_path / "demo/feeds/wiki"
    template = "https://wiki.example/{id}"
    with live(tmp_path, Server.of_folder(folder), API, form="mediawiki", url_template=template) as wiki:
        files = Feed(name="wiki", source="wiki", location=folder, url_template=template)

        def from_files() -> dict:
            found = open_source(files, wiki.context).changes(None)
            return {change.record.id: change.record for change in found if isinstance(change, Upsert)}

        wiki.sync()
        assert len(wiki.records) > 20
        assert wiki.records == from_files()
        first = wiki.source().fingerprint()
        assert wiki.sync() == []
        assert wiki.server.asked(BODIES) == []
        page = next(folder.rglob("*.wiki"))
        page.write_text(page.read_text() + "\nOne more line.\n")
        next(folder.rglob("*.md")).unlink()
        (folder / "rf/Late.txt").write_text("====== Late ======\n\nA late page.\n")
        for written in (page, folder / "rf/Late.txt"):
            os.utime(written, (1_764_000_000, 1_764_000_000))  # a wiki's times have whole seconds
        assert wiki.source().fingerprint() != first
        assert len([c for c in wiki.sync() if isinstance(c, Upsert)]) == 2
        assert wiki.records == from_files()


def test_a_new_server_of_the_same_folder_serves_the_same_wiki(tmp_path: Path) -> None:
    folder = tmp_path / "wiki"
    folder.mkdir()
    (folder / "A.md").write_text("# A\n\nkicker\n")
    with live(tmp_path, Server.of_folder(folder), API, form="mediawiki") as wiki:
        wiki.sync()
        pulse = wiki.source().fingerprint()
        wiki.server.app = Server.of_folder(folder)
        assert wiki.source().fingerprint() == pulse
        assert wiki.sync() == []
        (folder / "A.md").write_text("# A\n\nseptum\n")
        wiki.server.app = Server.of_folder(folder)
        assert wiki.source().fingerprint() != pulse
        wiki.sync()
        assert text_of(wiki.records["A"]) == "septum"


def test_listings_and_bodies_are_continued_to_their_end(wiki: Live, store: WikiStore) -> None:
    store.limit, store.reply_chars = 7, 4000
    for number in range(120):
        store.edit(f"Page {number}", f"kicker {number} " + "words " * 60)
        if number % 3 == 0:
            store.edit(f"Alias {number}", f"#REDIRECT [[Page {number}]]", redirect=f"Page {number}")
    wiki.sync()
    assert len(wiki.records) == 120
    assert all(f"kicker {number} words" in text_of(wiki.records[f"Page_{number}"]) for number in range(120))
    assert wiki.records["Page_3"].fields["former_ids"] == ["Alias_3"]
    assert len(wiki.server.asked("generator=allpages")) == 23
    store.reply_chars = 8_000_000
    wiki.cursor = None
    wiki.sync()
    assert len(wiki.server.asked(BODIES)) == 3, "fifty pages at a time"


def test_a_moved_page_keeps_its_old_name(wiki: Live, store: WikiStore) -> None:
    store.edit("Old name", "the kicker")
    store.edit("Silent", "the septum")
    wiki.sync()
    store.move("Old name", "New name")
    store.move("Silent", "Loud", leave_redirect=False)
    wiki.sync()
    assert sorted(wiki.records) == ["Loud", "New_name"]
    assert wiki.records["New_name"].fields["former_ids"] == ["Old_name"]
    assert wiki.records["Loud"].fields["former_ids"] == ["Silent"]
    store.move("Loud", "Louder", leave_redirect=False)
    wiki.sync()
    assert wiki.records["Louder"].fields["former_ids"] == ["Loud", "Silent"]
    assert wiki.sync() == []
    store.edit("Silent", "another page of the old name")
    wiki.sync()
    assert sorted(wiki.records) == ["Louder", "New_name", "Silent"]
    assert wiki.records["Louder"].fields["former_ids"] == ["Loud"]
    wiki.sync()
    assert wiki.sync() == []


def test_redirects_are_names_of_the_page_they_lead_to(wiki: Live, store: WikiStore) -> None:
    store.edit("Radio frequency", "the RF")
    for title, target in (("RF", "Radio frequency"), ("R F", "RF"), ("A", "B"), ("B", "A"), ("Lost", "Nowhere")):
        store.edit(title, f"#REDIRECT [[{target}]]", redirect=target)
    wiki.sync()
    assert list(wiki.records) == ["Radio_frequency"]
    assert wiki.records["Radio_frequency"].fields["former_ids"] == ["RF", "R_F"]
    store.delete("R F")
    wiki.sync()
    assert wiki.records["Radio_frequency"].fields["former_ids"] == ["RF"]


def test_a_page_that_becomes_a_redirect_is_no_record(wiki: Live, store: WikiStore) -> None:
    store.edit("Twin", "one text")
    store.edit("Whole", "all of it")
    wiki.sync()
    store.edit("Twin", "#REDIRECT [[Whole]]", redirect="Whole")
    wiki.sync()
    assert list(wiki.records) == ["Whole"]
    assert wiki.records["Whole"].fields["former_ids"] == ["Twin"]


def test_deletion_restoration_and_a_title_used_again(wiki: Live, store: WikiStore) -> None:
    store.edit("Stay", "stays")
    first = store.edit("Page", "before").id
    wiki.sync()
    store.delete("Page")
    assert wiki.sync() == [Complete(str(first))]
    assert list(wiki.records) == ["Stay"]
    store.restore("Page")
    wiki.sync()
    assert text_of(wiki.records["Page"]) == "before"
    store.delete("Page")
    assert store.edit("Page", "after").id != first
    wiki.sync()
    assert text_of(wiki.records["Page"]) == "after"


def test_the_fingerprint_moves_with_everything_but_the_clock(wiki: Live, store: WikiStore) -> None:
    store.edit("Stay", "stays")
    store.edit("Page", "one")
    store.edit("Other", "two")
    source = wiki.source()
    seen = [source.fingerprint()]
    store.now -= timedelta(days=2)  # a clock put back: what happens now sorts behind what happened before
    steps = (
        lambda: store.edit("Page", "edited"),
        lambda: store.edit("Late", "created"),
        lambda: store.move("Other", "Another"),
        lambda: store.delete("Page"),
        lambda: store.restore("Page"),
        lambda: store.upload("Scope.png", png()),
        lambda: store.upload("Scope.png", png() + b" "),
    )
    for step in steps:
        step()
        assert source.fingerprint() not in seen
        seen.append(source.fingerprint())
    assert source.fingerprint() == seen[-1]
    store.now += timedelta(days=9)
    assert source.fingerprint() == seen[-1]


@pytest.mark.parametrize("code", ["maxlag", "ratelimited", "readonly"])
def test_a_busy_wiki_is_asked_again(wiki: Live, store: WikiStore, code: str) -> None:
    store.edit("Page", "text")
    body = b'{"error": {"code": "%s", "info": "Come back later."}, "servedby": "mw1"}' % code.encode()
    wiki.server.fail("body", body=body, path="allpages")
    wiki.sync()
    assert list(wiki.records) == ["Page"]
    wiki.server.fail("body", body=body, path="allpages", times=-1)
    with pytest.raises(FeedError, match=f"{code}: Come back later"):
        wiki.sync()


def test_database_lag_is_an_outage_that_ends(wiki: Live, store: WikiStore) -> None:
    store.edit("Page", "text")
    wiki.sync()
    store.lag = 8
    with pytest.raises(FeedError, match=r"127\.0\.0\.1"):
        wiki.sync()


def test_an_error_object_names_itself(wiki: Live, store: WikiStore) -> None:
    store.edit("Page", "text")
    wiki.again(options={"namespaces": [-7]})
    with pytest.raises(FeedError, match="badinteger: Invalid value"):
        wiki.sync()


def secret(root: Path, value: str) -> SecretPlace:
    (root / "secret").write_text(value)
    return SecretPlace(file=root / "secret")


def test_a_private_wiki_wants_a_bot_password(wiki: Live, store: WikiStore, app: Altered, tmp_path: Path) -> None:
    store.anonymous_may_read, store.users = False, {"Reader@index": "bot-pass-123"}
    store.edit("Page", "text [[File:Scope.png]]")
    store.upload("Scope.png", png())
    with pytest.raises(FeedError, match=r"readapidenied.*bot password in `credentials`"):
        wiki.sync()
    wiki.again(credentials=Credentials(user="Reader@index", password=secret(tmp_path, "wrong-pass")))
    with pytest.raises(FeedError, match="signing in failed") as told:
        wiki.sync()
    assert "wrong-pass" not in str(told.value)
    wiki.again(credentials=Credentials(user="Reader@index", password=secret(tmp_path, "bot-pass-123")))
    assert wiki.failures() == []
    assert [a.name for a in wiki.records["Page"].attachments] == ["Scope.png"], "through img_auth.php, signed in"
    assert "bot-pass-123" not in repr(wiki.cursor)


@pytest.mark.parametrize("named", ["user", "password", "both and a token"])
def test_half_a_sign_in_asks_nothing(wiki: Live, tmp_path: Path, named: str) -> None:
    place = secret(tmp_path, "bot-pass-123")
    half = {
        "user": Credentials(user="Reader@index"),
        "password": Credentials(password=place),
        "both and a token": Credentials(user="Reader@index", password=place, token=place),
    }[named]
    wiki.again(credentials=half)
    asked = len(wiki.server.requests)
    with pytest.raises(FeedError, match=r"feed wiki: credentials name .*leave"):
        wiki.sync()
    assert len(wiki.server.requests) == asked


def test_a_session_that_ends_shows_no_smaller_wiki(wiki: Live, store: WikiStore, app: Altered, tmp_path: Path) -> None:
    store.users = {"Reader@index": "bot-pass-123"}
    store.edit("Page", "text")
    wiki.again(credentials=Credentials(user="Reader@index", password=secret(tmp_path, "bot-pass-123")))
    wiki.sync()
    signed_out = Altered(app.app)

    def end(request, answer):
        if request.args.get("generator") != "allpages":
            app.app.end_sessions()
        return answer

    signed_out.change = end
    wiki.server.app = signed_out
    with pytest.raises(FeedError, match="assertuserfailed"):
        wiki.sync()


def test_an_edit_during_the_scan_is_read_with_the_next(wiki: Live, store: WikiStore, app: Altered) -> None:
    store.edit("Page", "before")

    def edit(request, answer):
        if request.args.get("generator") == "allpages":
            store.edit("Page", "written while it was read")
            app.change = lambda _, answer: answer
        return answer

    app.change = edit
    wiki.sync()
    wiki.sync()
    assert text_of(wiki.records["Page"]) == "written while it was read"
    assert wiki.sync() == []


def test_pages_repeated_missing_and_without_id(wiki: Live, store: WikiStore, app: Altered) -> None:
    for number in range(4):
        store.edit(f"Page {number}", f"text {number}")
    kept = store.find("Page 3").id
    wiki.sync()

    def twist(request, answer):
        if request.args.get("generator") == "allpages":
            pages = answer["query"]["pages"]
            pages.pop(str(kept))
            pages["-1"] = {"ns": 0, "title": "Bad#title", "invalid": "", "invalidreason": "The title has a #."}
            if "gapcontinue" not in request.args:
                answer["continue"] = {"gapcontinue": "Page_0", "continue": "gapcontinue||"}  # once more the same page
        return answer

    app.change = twist
    failures = wiki.failures()
    assert {(failure.unit, failure.permanent) for failure in failures} == {("Bad#title", False), (str(kept), False)}
    assert any("answers when it is asked for" in failure.reason for failure in failures)
    assert len(wiki.records) == 4


def test_a_listing_in_a_circle_is_an_outage(wiki: Live, store: WikiStore, app: Altered) -> None:
    store.edit("Page", "text")
    app.change = lambda _, answer: {**answer, "continue": {"gapcontinue": "Page", "continue": "gapcontinue||"}}
    with pytest.raises(FeedError, match="round in circles"):
        wiki.sync()


def test_a_page_that_fails_for_ever_stops_no_other(wiki: Live, store: WikiStore, app: Altered) -> None:
    bad = store.edit("Bad", "text")
    store.edit("Good", "text")

    def spoil(request, answer):
        page = answer.get("query", {}).get("pages", {}).get(str(bad.id), {})
        for revision in page.get("revisions", ()):
            revision["slots"]["main"] = {"contentmodel": "wikitext", "missing": ""}
        return answer

    app.change = spoil
    for edit in range(3):
        (failure,) = wiki.failures()
        assert (failure.unit, failure.reason) == (str(bad.id), "its text cannot be had (missing)")
        store.edit("Good", f"edit {edit}")
    app.change = lambda _, answer: answer
    wiki.sync()
    assert sorted(wiki.records) == ["Bad", "Good"]


def test_a_wrong_address_or_option_says_so(wiki: Live, store: WikiStore) -> None:
    store.edit("Page", "text")
    wiki.again(options={"namespace": 0})
    with pytest.raises(FeedError, match=r"options\.namespace: .*there are: namespaces, markups"):
        wiki.sync()
    wiki.again(options={}, url="wiki.example")
    with pytest.raises(FeedError, match="`url` is missing"):
        wiki.sync()
    wiki.again(url=f"{wiki.server.url}/wiki/Main_Page")
    assert isinstance(wiki.source().check().units, int), "any folder holds an api.php on this server"
    wiki.server.fail("status", status=404, times=-1)
    with pytest.raises(FeedError, match=r"is `url` the address of api\.php"):
        wiki.sync()


def test_a_missing_api_takes_no_page_away(wiki: Live, store: WikiStore) -> None:
    for number in range(3):
        store.edit(f"Page {number}", "text")
    wiki.sync()
    store.edit("Page 1", "edited")
    wiki.server.fail("status", status=404, path=BODIES, times=-1)
    (failure,) = wiki.failures()
    assert isinstance(failure, Failure)
    assert len(wiki.records) == 3


@pytest.mark.parametrize("pages", [None, {}, [], "gone", {"1": None}, {"1": {"pageid": 1, "ns": 0, "title": 7}}])
def test_an_answer_that_says_nothing_of_a_page_takes_none_away(
    wiki: Live, store: WikiStore, app: Altered, pages: object
) -> None:
    assert store.edit("Page", "text").id == 1
    wiki.sync()
    store.edit("Page", "edited")

    def silence(request, answer):
        if request.args.get("prop", "").startswith("revisions"):
            answer["query"]["pages"] = pages
            if pages == "gone":
                del answer["query"]["pages"]
        return answer

    app.change = silence
    for _ in range(2):
        (failure,) = wiki.failures()
        assert (failure.unit, failure.permanent) == ("1", False)
        assert text_of(wiki.records["Page"]) == "text"
    app.change = lambda _, answer: answer
    wiki.sync()
    assert text_of(wiki.records["Page"]) == "edited"


@pytest.mark.parametrize("model", [None, "", 7, {}])
def test_a_page_of_unknown_kind_keeps_its_record(wiki: Live, store: WikiStore, app: Altered, model: object) -> None:
    store.edit("Page", "text")
    wiki.sync()
    store.edit("Page", "edited")

    def spoil(request, answer):
        for page in answer.get("query", {}).get("pages", {}).values():
            for revision in page.get("revisions", ()):
                revision["slots"]["main"]["contentmodel"] = model
        return answer

    app.change = spoil
    (failure,) = wiki.failures()
    assert "what kind of text" in failure.reason
    assert list(wiki.records) == ["Page"]


def test_a_page_whose_namespace_is_not_told_is_not_gone(wiki: Live, store: WikiStore, app: Altered) -> None:
    for number in range(2):
        store.edit(f"Page {number}", "text")
    left_out = str(store.find("Page 0").id)
    wiki.sync()

    def spoil(request, answer):
        if request.args.get("generator") == "allpages":
            del answer["query"]["pages"][left_out]
        elif request.args.get("pageids") == left_out:
            del answer["query"]["pages"][left_out]["ns"]
        return answer

    app.change = spoil
    (failure,) = wiki.failures()
    assert "in which namespace" in failure.reason
    assert len(wiki.records) == 2


def test_a_password_follows_no_redirect_to_another_host(wiki: Live, store: WikiStore, tmp_path: Path) -> None:
    store.users = {"Reader@index": "bot-pass-123"}
    store.edit("Page", "text")
    caught: list[bytes] = []

    def other(environ, start_response):
        caught.append(Request(environ).get_data())
        return Response("{}", mimetype="application/json")(environ, start_response)

    wiki.again(credentials=Credentials(user="Reader@index", password=secret(tmp_path, "bot-pass-123")))
    with serving(other) as elsewhere:
        there = elsewhere.url.replace("127.0.0.1", "localhost") + "/api.php"
        for status in (301, 302, 307, 308):
            wiki.server.fail("status", status=status, path=r"api\.php$", headers={"Location": there}, times=-1)
            with pytest.raises(FeedError):
                wiki.sync()
            wiki.server.faults.clear()
    assert not any(b"bot-pass-123" in body for body in caught)


def test_a_sign_in_page_is_no_picture(wiki: Live, store: WikiStore, app: Altered) -> None:
    store.edit("Page", "text [[File:Scope.png]]")
    store.upload("Scope.png", png())
    page = b"<!DOCTYPE html><title>Sign in</title>"
    wiki.server.fail("status", status=200, body=page, headers={"Content-Type": "text/html"}, path="/images/", times=-1)
    (failure,) = wiki.failures()
    assert "a web page came in place of Scope.png" in failure.reason
    wiki.server.faults.clear()
    assert wiki.failures() == []
    assert [a.name for a in wiki.records["Page"].attachments] == ["Scope.png"]


@pytest.mark.parametrize("name", ["title", "lastrevid"])
def test_one_odd_item_of_a_listing_costs_itself_alone(wiki: Live, store: WikiStore, app: Altered, name: str) -> None:
    odd = store.edit("Old", "text")
    store.edit("Good", "text")
    wiki.sync()
    store.move("Old", "New", leave_redirect=False)
    wiki.sync()
    for number, value in enumerate((None, 7.5, {}, "")):
        store.edit("New", f"edit {number}")
        store.edit("Good", f"edit {number}")

        def spoil(request, answer, value=value):
            if request.args.get("generator") == "allpages":
                answer["query"]["pages"][str(odd.id)][name] = value
            return answer

        app.change = spoil
        (failure,) = wiki.failures()
        assert (failure.unit, failure.permanent) == (str(odd.id), False)
        assert {record_id: text_of(record) for record_id, record in wiki.records.items()} == {
            "New": "text",
            "Good": f"edit {number}",
        }
    app.change = lambda _, answer: answer
    assert wiki.failures() == []
    assert text_of(wiki.records["New"]) == "edit 3"
    assert wiki.records["New"].fields["former_ids"] == ["Old"]


def test_halves_of_characters_cost_nothing(wiki: Live, store: WikiStore, app: Altered) -> None:
    page = store.edit("Page", "text \ud83d", user="Kavya \ud83d")
    store.edit("Other", "text", user="Kavya")

    def halve(request, answer):
        found = answer.get("query", {}).get("pages", {}).get(str(page.id), {})
        found.update(title="Page \ud83d", displaytitle="Page \ud83d")
        return answer

    app.change = halve
    wiki.sync()
    assert {record.author for record in wiki.records.values()} == {"Kavya", "Kavya \ufffd"}
    assert sorted(wiki.records) == ["Other", "Page_\ufffd"]
    assert wiki.sync() == []


@pytest.mark.parametrize("spoiled", ["statistics", "recentchanges", "logevents"])
@pytest.mark.parametrize("value", [None, 7, "", [{"rcid": None, "logid": None}]])
def test_a_pulse_that_cannot_be_felt_is_the_whole_listing(
    wiki: Live, store: WikiStore, app: Altered, spoiled: str, value: object
) -> None:
    store.edit("Page", "text")
    pulse = wiki.source().fingerprint()

    def spoil(request, answer):
        if spoiled in answer["query"]:
            answer["query"][spoiled] = value
        return answer

    app.change = spoil
    seen = wiki.source().fingerprint()
    assert seen is not None
    assert seen != pulse
    store.edit("Page", "edited")
    assert wiki.source().fingerprint() != seen
