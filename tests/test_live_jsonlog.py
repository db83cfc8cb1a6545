"""Log books that services give as JSON, by the traps of the real ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from werkzeug import Request, Response

from aps_rag_pipeline.sources.base import Complete, Failure, FeedError, Upsert
from aps_rag_pipeline.sources.logbooks_live import jsonlog
from tests.live_cases.elogserver import ElogServer
from tests.live_cases.ologserver import OlogServer
from tests.log_services import PNG, Book, book, of, read_files, words
from tests.serving import serving


@dataclass
class JsonServer:
    """Gives `reply` at /log, and `files` elsewhere."""

    reply: Any = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = Request(environ)
        if request.path == "/log":
            body = self.reply(request) if callable(self.reply) else self.reply
            reply = Response(body if isinstance(body, str) else json.dumps(body), mimetype="text/html")
        else:
            data = self.files.get(request.path)
            reply = Response("no such file", 404) if data is None else Response(data)
        return reply(environ, start_response)


@pytest.fixture
def journal() -> Iterator[Book]:
    with book(JsonServer(), "json", "/log") as made:
        yield made


def als(number: int, text: str, **more: Any) -> dict[str, Any]:
    stamp = str(1_704_067_200 + number * 3600)
    return {"id": str(number), "timestamp": stamp, "author": "alee", "subject": f"S{number}", "details": text, **more}


@pytest.mark.parametrize("name", ["jlab", "als", "generic", "ornl"])
def test_the_shapes_of_other_facilities(journal: Book, shared: Path, tmp_path: Path, name: str) -> None:
    (path,) = (shared / "logbook").rglob(f"sample_{name}_entries.json*")
    text = re.sub(r'"attachments": \[\{.*?\}\]', '"attachments": []', path.read_text())
    journal.server.app.reply = text
    (tmp_path / path.name).write_text(text)
    live = journal.records()
    assert len(live) >= 5
    assert live == read_files(tmp_path)
    assert journal.sync() == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<html><title>Sign in</title></html>", "Sign in|HTML"),
        ('{"error": "database is away"}', "database is away"),
        ('{"error": {"message": "no"}}', "no"),
        ("{}", "where entries were due"),
        ("null", "where entries were due"),
        ('{"data": null}', "where entries were due"),
        ('{"data": {}}', "where entries were due"),
        ('{"status": "maintenance"}', "where entries were due"),
        ('[{"id": "1"', "cut off"),
        ("", "cut off"),
        ("[]", "nothing is listed"),
        ('{"id": 1, "timestamp": 2, "subject": "a", "details": "b"}\n{"id": 2, "times', "line 2|JSON"),
    ],
)
def test_what_is_no_list_of_entries_is_an_outage(journal: Book, body: str, said: str) -> None:
    journal.server.app.reply = [als(1, "one"), als(2, "two")]
    journal.sync()
    journal.server.app.reply = body
    with pytest.raises(FeedError, match=said) as caught:
        journal.sync()
    assert journal.server.url.removeprefix("http://") in str(caught.value)


def test_stretches_of_time_meet_and_reach_beyond_now(journal: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    start = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp())
    entries = {start + days * 86_400 + 43_200 * (days % 2): days for days in range(0, 1500, 10)}

    def stretch(request: Request) -> list[Any]:
        first, last = int(request.args["start"]), int(request.args["end"])
        return [als(number, f"entry {number}") for made, number in entries.items() if first < made < last]

    journal.server.app.reply = stretch
    journal.options = {"windows": {"since": "2019-12-01", "days": 100}, "parameters": {"op": "retrieve"}}
    monkeypatch.setattr(jsonlog.clock, "now", lambda: datetime.fromtimestamp(max(entries), UTC) - timedelta(days=60))
    assert len(journal.records()) == len(entries), "a clock that is two months behind hides nothing"
    assert all("op=retrieve" in request for request in journal.server.requests)
    assert journal.sync() == []


def test_a_stretch_that_is_missing_once_removes_nothing(journal: Book) -> None:
    journal.server.app.reply = [als(number, "text") for number in range(1, 6)]
    journal.sync()
    journal.server.fail("body", body=json.dumps([als(1, "text")]).encode())
    with pytest.raises(FeedError, match="two requests in a row"):
        journal.sync()
    journal.server.app.reply = [als(number, "text") for number in range(1, 5)]
    assert [c.unit for c in journal.sync()] == ["5"]


def test_what_contradicts_itself_or_has_no_id_is_told(journal: Book) -> None:
    journal.server.app.reply = [als(1, "one"), als(2, "two"), als(2, "two"), als(1, "other"), {**als(3, "x"), "id": ""}]
    changes = journal.sync()
    assert {c.record.id for c in of(Upsert, changes)} == {"1", "2"}
    assert words(of(Upsert, changes)[0].record) == "one"
    assert {c.record_id for c in of(Failure, changes)} == {"1", ""}


def test_an_entry_that_became_unreadable_keeps_its_record(journal: Book) -> None:
    journal.server.app.reply = [als(1, "one"), als(2, "two")]
    journal.sync()
    broken = {"id": "2", "oops": True}
    journal.server.app.reply = [als(1, "one"), broken]
    for _ in range(2):
        changes = journal.sync()
        assert of(Complete, changes) == []
        assert [(f.unit, f.item) for f in of(Failure, changes)] == [("2", "2")]
    journal.server.app.reply = [als(1, "one"), als(2, "two again")]
    assert [c.unit for c in of(Complete, journal.sync())] == ["2"]


def test_a_json_entry_that_lost_its_id_keeps_its_record(journal: Book) -> None:
    journal.server.app.reply = [als(1, "one"), als(2, "two")]
    journal.sync()
    journal.server.app.reply = [als(1, "edited"), {**als(2, "two"), "id": None}]
    for _ in range(2):
        changes = journal.sync()
        assert of(Complete, changes) == [Complete("1")] * bool(of(Upsert, changes))
        assert "2" in {f.unit for f in of(Failure, changes)}
        assert "2" in journal.cursor["units"]
    journal.server.app.reply = [als(1, "edited")]
    assert journal.sync() == [Complete("2")]


def test_a_json_thread_whose_reply_lost_its_id_stays_as_it_was(journal: Book) -> None:
    reply = {"logId": 2, "logEntry": "it was the filament", "parentLogId": 1}
    journal.server.app.reply = [{"logId": 1, "logEntry": "klystron tripped", "logReplies": [reply]}]
    assert "filament" in words(journal.records()["1"])
    journal.server.app.reply[0]["logReplies"] = [{**reply, "logId": None}]
    for _ in range(2):
        changes = journal.sync()
        assert of(Upsert, changes) + of(Complete, changes) == []
        assert "1" in {f.unit for f in of(Failure, changes)}
    journal.server.app.reply[0]["logReplies"] = [reply]
    journal.sync()
    assert journal.sync() == []


def test_files_of_json_log_books(journal: Book) -> None:
    files = [{"url": "attachments/2024/scope.png"}, {"url": "http://elsewhere.example/x.png"}]
    files += [{"url": f"{journal.server.url}/files/note.txt?version=2", "filename": "note.txt"}]
    journal.server.app.files["/files/note.txt"] = b"12 gpm"
    journal.server.app.files["/attachments/2024/scope.png"] = PNG
    journal.server.app.reply = [als(1, "one", attachments=files)]
    record = journal.records()["1"]
    assert [(a.name, a.media_type) for a in record.attachments] == [
        ("scope.png", "image/png"),
        ("note.txt", "text/plain"),
    ]
    assert ("url", "http://elsewhere.example/x.png") in {(link.kind, link.target) for link in record.links}
    journal.server.app.reply = [als(1, "edited", attachments=files)]
    assert len(journal.records()["1"].attachments) == 2
    assert journal.server.asked("scope|note") == []


@pytest.mark.parametrize(
    "address",
    [
        "//{other}/x.png",
        "http://{other}/x.png",
        "http:\\\\{other}\\x.png",
        "/\t/{other}/x.png",
        "\n//{other}/x.png",
        "/\\{other}/x.png",
        "///{other}/x.png",
        "{home}//{other}/x.png",
        "{home}@{other}/x.png",
        "http://reader:guess@{bare}/x.png",
        "{home}\\@{other}/x.png",
        "//{other}/log/attachments/x.png",
        "http://[{other}/x.png",
        "https://{bare}/x.png",
    ],
)
def test_what_an_entry_names_gets_no_secrets(journal: Book, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("LOG_TOKEN", "t0ken")
    journal.more = {"credentials": {"token": {"env": "LOG_TOKEN"}}}
    with serving(lambda environ, start: Response(PNG)(environ, start)) as other:
        there = other.url.removeprefix("http://").replace("127.0.0.1", "localhost")
        home, bare = journal.server.url, journal.server.url.removeprefix("http://")
        named = address.format(other=there, home=home, bare=bare)
        text = f"see ![x](<{named}>)" if named.isprintable() else "see the picture"
        journal.server.app.reply = [als(1, text, attachments=[named, {"url": named}])]
        record = journal.records()["1"]
        assert other.requests == []
        assert record.attachments == ()
        assert all(headers.get("AUTHORIZATION") == "Bearer t0ken" for headers in journal.server.headers)
    assert "t0ken" not in json.dumps(record.fields | {"links": [link.target for link in record.links]})


def test_a_file_without_a_scheme_on_another_host_is_a_link(journal: Book) -> None:
    journal.server.app.reply = [als(1, "one", attachments=["//elsewhere.example/a/x.png"])]
    (record,) = [c.record for c in of(Upsert, journal.sync())]
    assert ("url", "http://elsewhere.example/a/x.png") in {(link.kind, link.target) for link in record.links}
    assert len(journal.server.requests) == 1


def test_secrets_of_json_log_books(journal: Book, tmp_path: Path) -> None:
    journal.server.app.reply = [als(1, "one")]
    (tmp_path / "token").write_text("t0ken")
    journal.more = {"credentials": {"token": {"file": str(tmp_path / "token")}}}
    journal.sync()
    assert journal.server.headers[0]["AUTHORIZATION"] == "Bearer t0ken"
    assert "t0ken" not in json.dumps(journal.cursor)
    journal.more = {"credentials": {"user": "u", "password": {"file": str(tmp_path / "none")}}}
    with pytest.raises(FeedError, match="cannot be read"):
        journal.sync()


@pytest.mark.parametrize("options", [{"dialect": "docuwiki"}, {"windows": {"days": 0}}, {"window": {}}])
def test_options_of_json_log_books_are_checked(journal: Book, options: dict[str, Any]) -> None:
    journal.options = options
    with pytest.raises(FeedError, match=r"feed live: options\."):
        journal.sync()


@pytest.mark.parametrize("form", ["olog", "elog", "json"])
def test_a_sign_in_page_is_not_kept_as_a_file(form: str) -> None:
    services: dict[str, tuple[Any, str]] = {
        "olog": (OlogServer(), "/Olog"), "elog": (ElogServer(), "/Operations"), "json": (JsonServer(), "/log"),
    }  # fmt: skip
    app, path = services[form]
    with book(app, form, path) as made:
        if form == "json":
            app.reply = [als(1, "see the picture", attachments=[{"url": "/a?id=5", "filename": "scope.png"}])]
            app.files["/a"] = PNG
        else:
            app.write("see the picture", 1)
            app.attach(1, "scope.png", PNG)
        made.server.fail("html", path=r"attachment/|/231114_|/a\?")
        changes = made.sync()
        assert [c.record.attachments for c in of(Upsert, changes)] == [()]
        assert "a web page came in place of scope.png" in of(Failure, changes)[0].reason
        assert [made.blobs[a.sha256] for a in made.records()["1"].attachments] == [PNG]
        assert made.sync() == []
