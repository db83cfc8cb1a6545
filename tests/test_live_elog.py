"""PSI ELOG as a live log book, by the traps of the real service."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from passlib.hash import sha256_crypt
from werkzeug import Response

from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources.base import Complete, Failure, FeedError, SourceContext, Upsert
from aps_rag_pipeline.sources.bely import FORMS
from aps_rag_pipeline.sources.logbooks.elcode import elcode_to_markdown
from aps_rag_pipeline.sources.logbooks_live.elog import elog_password
from aps_rag_pipeline.sources.net.errors import RefusedError
from tests.live_cases.elogserver import ElogServer
from tests.log_services import CHICAGO, PNG, Blobs, Book, book, of, read_files, words


@pytest.fixture
def elogd() -> ElogServer:
    return ElogServer()


@pytest.fixture
def diary(elogd: ElogServer) -> Iterator[Book]:
    with book(elogd, "elog", "/Operations") as made:
        yield made


def test_elog_reads_only_what_moved(elogd: ElogServer, diary: Book) -> None:
    for number in range(1, 8):
        elogd.write(f"entry {number}", number, Subject=f"About {number}", Category="RF | Vacuum")
    records = diary.records()
    assert len(records) == 7
    assert records["3"].title == "About 3"
    assert records["3"].author == "ritt"
    assert records["3"].created_at == datetime(2023, 11, 14, 21, 13, 20, tzinfo=UTC)
    assert records["3"].fields == {"logbook": ["Operations"], "category": ["RF", "Vacuum"]}
    assert diary.sync() == []
    assert diary.server.requests == ["GET /Operations/?cmd=GetMD5"]
    elogd.write("entry 3, corrected", 3)
    assert words(diary.records()["3"]) == "entry 3, corrected"
    assert diary.server.asked("Download") == ["GET /Operations/3?cmd=Download"]
    assert diary.source().fingerprint() != Book(diary.server, "elog", "/Nowhere").form
    diary.server.forget()
    assert diary.source().check().units == 7
    assert diary.server.asked("Download") == []


def test_late_elog_replies_find_their_thread(elogd: ElogServer, diary: Book) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("Water flow low", 2)
    elogd.write("It was the filament", 3, answers=1)
    assert diary.records().keys() == {"1", "2"}
    elogd.write("No, its supply", 4, answers=3, Author="bob")
    (record,) = diary.records().values()
    assert [part.locator for part in record.parts] == ["log 1", "log 3", "log 4"]
    assert record.parts[2].text.startswith("bob")
    assert record.fields["reply_count"] == 2
    elogd.delete(4)
    assert [part.locator for part in diary.records()["1"].parts] == ["log 1", "log 3"]
    elogd.delete(1)
    assert {c.unit for c in of(Complete, diary.sync())} == {"1"}


def test_an_elog_entry_that_becomes_a_reply_gives_up_its_record(elogd: ElogServer, diary: Book) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("It was the filament", 2)
    assert diary.records().keys() == {"1", "2"}
    elogd.write("It was the filament", 2, answers=1)
    changes = diary.sync()
    assert [c.record.id for c in of(Upsert, changes)] == ["1"]
    assert {c.unit for c in of(Complete, changes)} == {"1", "2"}


def test_elog_replies_in_a_ring_are_records(elogd: ElogServer, diary: Book) -> None:
    elogd.write("one", 1)
    elogd.write("two", 2, answers=1)
    elogd.entries[1][0]["In reply to"] = "2"
    assert diary.records().keys() == {"1", "2"}
    assert diary.sync() == []


def test_an_elog_reply_that_fails_costs_what_is_not_known(elogd: ElogServer, diary: Book) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("It was the filament", 2, answers=1)
    diary.server.fail("status", path="/Operations/2\\?", times=-1)
    changes = diary.sync()
    assert words(of(Upsert, changes)[0].record) == "Klystron 3 tripped"
    (failure,) = of(Failure, changes)
    assert (failure.unit, failure.item, failure.record_id, failure.permanent) == ("1", "1/2", "1", False)
    diary.server.faults.clear()
    changes = diary.sync()
    assert "filament" in words(of(Upsert, changes)[0].record)
    assert of(Failure, changes) == []
    assert diary.sync() == []
    diary.server.fail("status", path="/Operations/2\\?", times=-1)
    elogd.write("It was the filament supply", 2, answers=1)
    elogd.write("Klystron 3 tripped again", 1)
    changes = diary.sync()
    assert of(Upsert, changes) == [], "words that are known are not given up for an outage"
    assert of(Complete, changes) == []
    assert [f.item for f in of(Failure, changes)] == ["1"]


def test_an_elog_reply_read_for_the_first_time_waits_for_its_thread(elogd: ElogServer, diary: Book) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("It was the filament", 2, answers=1)
    del elogd.entries[1][0]["Reply to"]
    diary.server.fail("status", path="/Operations/2\\?", times=3)
    changes = diary.sync()
    assert [c.record.id for c in of(Upsert, changes)] == ["1"]
    assert "the next sync" in of(Failure, changes)[0].reason
    changes = diary.sync()
    assert "filament" in words(of(Upsert, changes)[0].record)
    assert of(Failure, changes) == []


def error_page(said: str) -> bytes:
    return f'<html><head><title>ELOG error</title></head><td class="errormsg" colspan=2>{said}</td></html>'.encode()


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "body", "body": error_page('Error: User "reader" is not allowed to perform command "Download"')},
        {"kind": "body", "body": error_page("Error: <b>Cannot open file 231114a.log</b>, the entry does not exist?")},
        {"kind": "status", "status": 404, "body": b"<html><title>nginx</title></html>"},
    ],
)
def test_an_error_page_of_elog_proves_nothing_of_an_entry_that_is_listed(
    elogd: ElogServer, diary: Book, fault: dict[str, Any]
) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("It was the filament", 2, answers=1)
    elogd.write("Water flow low", 3)
    diary.sync()
    elogd.write("It was the filament supply", 2, answers=1)
    elogd.write("Water flow low again", 3)
    diary.server.fail(path="Download", times=-1, **fault)
    for _ in range(2):
        changes = diary.sync()
        assert of(Upsert, changes) + of(Complete, changes) == []
        assert [(f.unit, f.item, f.permanent) for f in of(Failure, changes)] == [("1", "1", False), ("3", "3", False)]
    diary.server.faults[0].path = "/2.cmd=Download"
    changes = diary.sync()
    assert [c.unit for c in of(Complete, changes)] == ["3"]
    assert [f.item for f in of(Failure, changes)] == ["1"], "a thread is not read without one of its replies"
    diary.server.faults.clear()
    assert "filament supply" in words(diary.records()["1"])


@pytest.mark.parametrize("said", ["This entry has been deleted", "Dieser Eintrag wurde gel&ouml;scht", "Verboten"])
def test_an_elog_entry_deleted_while_it_is_read_is_gone_whatever_the_language(
    elogd: ElogServer, diary: Book, said: str
) -> None:
    elogd.write("Klystron 3 tripped", 1)
    elogd.write("It was the filament", 2, answers=1)
    elogd.write("Water flow low", 3)
    diary.sync()
    elogd.write("Klystron 3 tripped again", 1)
    elogd.write("Water flow low again", 3)
    listed: list[str] = []

    def deleting(environ: Any, start_response: Any) -> Any:
        if "Download" in environ["QUERY_STRING"] and not listed:
            listed.extend(diary.server.asked("GetMD5"))
            elogd.delete(2)
            elogd.delete(3)
        return elogd(environ, start_response)

    diary.server.app = deleting
    diary.server.fail("body", path="/[23].cmd=Download", times=-1, body=error_page(said))
    changes = diary.sync()
    assert of(Failure, changes) == []
    assert {c.unit for c in of(Complete, changes)} == {"1", "3"}
    assert [c.record.id for c in of(Upsert, changes)] == ["1"]
    assert len(listed) == 1


@pytest.mark.parametrize("lines", [2, 3, 4])
def test_a_list_of_digests_that_is_cut_off_removes_nothing(elogd: ElogServer, diary: Book, lines: int) -> None:
    for number in range(1, 6):
        elogd.write(f"entry {number}", number)
    diary.sync()
    listing = "".join(f"ID: {n:6d} MD5:{'0' * 32}\n" for n in range(lines))
    diary.server.fail("body", body=listing.encode(), path="GetMD5", times=-1)
    with pytest.raises(FeedError, match="leaves out entry"):
        diary.sync()
    diary.server.faults[0].body = listing.encode()[:-20]
    with pytest.raises(FeedError, match="cut off"):
        diary.sync()


def test_an_elog_entry_that_is_cut_off_is_asked_for_again(elogd: ElogServer, diary: Book) -> None:
    elogd.write("a long story about the kicker", 1)
    elogd.write("another", 2)
    diary.server.fail("torn", path="/Operations/1\\?", times=3)
    changes = diary.sync()
    assert [c.record.id for c in of(Upsert, changes)] == ["2"]
    assert of(Failure, changes)[0].unit == "1"
    assert words(diary.records()["1"]) == "a long story about the kicker"


def test_an_elog_entry_that_is_cut_off_at_the_end_of_a_line_is_not_believed(elogd: ElogServer, diary: Book) -> None:
    elogd.write("first line\nsecond line\n", 1)
    diary.sync()
    elogd.write("first line of the edit\nsecond line of the edit\n", 1)
    whole = diary.server.app

    def cutting(environ: Any, start_response: Any) -> Any:
        body = b"".join(whole(environ, start_response))
        return [body[: body.rindex(b"second")] if "Download" in environ["QUERY_STRING"] else body]

    diary.server.app = cutting
    changes = diary.sync()
    assert of(Upsert, changes) == []
    assert of(Failure, changes)[0].unit == "1"
    diary.server.app = whole
    assert "second line of the edit" in words(diary.records()["1"])


def test_elog_wants_its_cookies(elogd: ElogServer, diary: Book, tmp_path: Path) -> None:
    elogd.write("private", 1)
    elogd.user, elogd.password = "reader", elog_password("s3cret word")
    with pytest.raises(RefusedError, match="credentials"):
        diary.sync()
    (tmp_path / "password").write_text("s3cret word\n")
    diary.more = {"credentials": {"user": "reader", "password": {"file": str(tmp_path / "password")}}}
    assert diary.records().keys() == {"1"}
    assert "s3cret" not in json.dumps(diary.cursor)
    assert all(elogd.password in headers["COOKIE"] for headers in diary.server.headers)


@pytest.mark.parametrize(
    ("credentials", "said"),
    [
        ({"user": "reader"}, "no `password`; add it"),
        ({"token": {"env": "ELOG_TOKEN"}}, "a `token`, but ELOG takes a `user` with a `password`"),
        (
            {"user": "reader", "password": {"env": "ELOG_PASSWORD"}, "token": {"env": "ELOG_TOKEN"}},
            "a `token`, but ELOG",
        ),
        ({"password": {"env": "ELOG_PASSWORD"}}, "no `user`; add the user"),
    ],
)
def test_elog_is_never_asked_as_by_anybody_with_credentials(
    elogd: ElogServer, diary: Book, monkeypatch: pytest.MonkeyPatch, credentials: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("ELOG_TOKEN", "t0ken")
    monkeypatch.setenv("ELOG_PASSWORD", "s3cret word")
    elogd.write("for all to see", 1)
    diary.more = {"credentials": credentials}
    with pytest.raises(FeedError, match=f"feed live: credentials name .*{said}"):
        diary.sync()
    assert diary.server.requests == []


def test_options_of_elog_are_what_they_say(elogd: ElogServer, diary: Book, tmp_path: Path) -> None:
    elogd.write("private", 1, Subject="About 1", Writer="ritt")
    elogd.user, elogd.password = "reader", elog_password("s3cret word")
    (tmp_path / "password").write_text("s3cret word")
    (tmp_path / "encoded").write_text(elogd.password)
    for stored, is_encoded in (("password", "no"), ("encoded", True)):
        diary.more = {"credentials": {"user": "reader", "password": {"file": str(tmp_path / stored)}}}
        diary.options = {"password_is_encoded": is_encoded, "author": "Writer"}
        assert diary.source().check().units == 1
    assert diary.records()["1"].author == "ritt"
    for options in ({"password_is_encoded": "perhaps"}, {"author": 7}, {"password_encoded": True}):
        diary.options = options
        with pytest.raises(FeedError, match=rf"feed live: options\.{next(iter(options))}"):
            diary.sync()


def test_the_password_of_elog_is_the_crypt_of_unix() -> None:
    # The vectors are those of the specification, and of crypt(3) without salt.
    salted = sha256_crypt.using(salt="saltstring", rounds=5000).hash("Hello world!")
    assert salted.removeprefix("$5$saltstring$") == "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"
    assert elog_password("secret") == "o1w7HPzHt8gHmL5zUzDkRqt6Az.BjDfkvuDNNLWnXx5"


def test_elog_pictures_attached_inlined_and_pasted(elogd: ElogServer, diary: Book) -> None:
    elogd.write("", 1, encoding="HTML")
    stored = elogd.attach(1, "scope.png", PNG)
    elogd.attach(1, "notes.txt", b"12 gpm")
    pasted = base64.b64encode(PNG + b"pasted").decode()
    html = (
        f'<p>Trace <img alt="trace" src="{stored[:13]}/scope.png?lb=Operations&amp;thumb=1"></p>'
        f'<table><tr><th>PV</th></tr><tr><td>S:X</td></tr></table><img src="data:image/png;base64,{pasted}">'
    )
    elogd.entries[1] = (elogd.entries[1][0], html)
    record = diary.records()["1"]
    assert record.parts[0].text == "Trace [picture: trace]"
    assert record.parts[1].kind == "table"
    assert [(a.name.split("-")[0], a.part) for a in record.attachments] == [
        ("scope.png", 0),
        ("pasted", 2),
        ("notes.txt", -1),
    ]
    assert len(diary.server.asked("/231114_")) == 2
    elogd.entries[1] = (elogd.entries[1][0], html + "<p>more</p>")
    assert "more" in words(diary.records()["1"])
    assert diary.server.asked("/231114_") == []


def test_an_elog_file_that_is_a_page_is_none(elogd: ElogServer, diary: Book) -> None:
    elogd.write("see the picture", 1)
    del elogd.files[elogd.attach(1, "scope.png", PNG)]
    changes = diary.sync()
    assert [c.record.attachments for c in of(Upsert, changes)] == [()]
    assert "has no such file" in of(Failure, changes)[0].reason


def test_elog_folders_and_exports_read_like_the_server(elogd: ElogServer, diary: Book, tmp_path: Path) -> None:
    elogd.write("Klystron <3> & 4 tripped", 1, Subject="RF", **{"Operator on duty": "ann | bob"})
    elogd.write("[B]It was[/B] the [URL=http://x.org]filament[/URL], see elog:1", 2, answers=1, encoding="ELCode")
    elogd.write("<p>Water <b>flow</b></p>", 3, encoding="HTML")
    live = diary.records()
    assert live["1"].fields["operator_on_duty"] == ["ann", "bob"]
    assert "It was the filament (http://x.org)" in words(live["1"])
    for name, numbers in (("231114a.log", (1, 3)), ("231115a.log", (2,))):
        text = b"".join(elogd.raw(number) for number in numbers)
        (tmp_path / name).write_bytes(text.replace(b"\n", b"\r\n") if numbers == (2,) else text)
    (tmp_path / "elogd.log").write_text("15-Nov-2023 [ritt] LOGIN user\n")
    assert read_files(tmp_path, logbook="Operations") == live
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / "export.xml").write_text(elogd.xml())
    assert read_files(tmp_path, logbook="Operations") == live


def test_damaged_elog_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("$@MID@$: 1\nDate: x\n" + "=" * 40 + "\nfine\n$@MID@$: 2\nDate: cut o")
    (tmp_path / "b.xml").write_text("<?xml version='1.0'?>\n<ELOG_LIST><ENTRY><MID>3</MID><TEXT>cut o")
    (tmp_path / "c.xml").write_text('<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><ELOG_LIST>&e;</ELOG_LIST>')
    source = FORMS["files"](
        Feed(name="live", source="bely", location=tmp_path), SourceContext(CHICAGO, Blobs(), Limits())
    )
    changes = list(source.changes(None))
    assert [c.record.id for c in of(Upsert, changes)] == ["1"]
    assert {c.place.split(":")[0] for c in of(Failure, changes)} >= {"a.log", "b.xml"}
    assert not any("root:" in repr(change) for change in changes)


def test_attributes_of_an_elog_are_named_by_options(elogd: ElogServer, diary: Book) -> None:
    elogd.write("text", 1, Headline="Beam dump", Wer="Müller", Happened="2023-11-14 20:00")
    diary.options = {"title": "Headline", "author": "Wer", "event": "Happened", "logbook": "Betrieb"}
    record = diary.records()["1"]
    assert (record.title, record.author, record.fields["logbook"]) == ("Beam dump", "Müller", ["Betrieb"])
    assert record.fields["event_time"] == "2023-11-15T02:00:00Z"
    diary.options = {"titel": "Headline"}
    with pytest.raises(FeedError, match="titel"):
        diary.sync()


def test_elog_in_another_charset(elogd: ElogServer, diary: Book) -> None:
    elogd.write("Kühlwasser zu warm", 1)
    plain = elogd.raw
    elogd.raw = lambda number: plain(number).decode().encode("latin-1")
    assert words(diary.records()["1"]) == "Kühlwasser zu warm"


def test_an_address_that_is_no_elog_is_told(elogd: ElogServer, diary: Book) -> None:
    diary.path = "/Nowhere"
    with pytest.raises(FeedError, match="Nowhere"):
        diary.sync()
    diary.server.app = lambda environ, start: Response("hello")(environ, start)
    with pytest.raises(FeedError, match="address of a log book"):
        diary.sync()


def test_elog_entries_that_hang_do_not_hold_up_the_listing(elogd: ElogServer, diary: Book) -> None:
    for number in range(1, 4):
        elogd.write(f"entry {number}", number)
    diary.server.fail("hang", path="/Operations/2\\?", times=3)
    changes = diary.sync()
    assert {c.record.id for c in of(Upsert, changes)} >= {"1", "3"}
    diary.server.stopping.clear()
    diary.sync()
    assert diary.sync() == []


@pytest.mark.parametrize(
    ("elcode", "markdown"),
    [
        ("[B]bold[/B] [I]it[/I] [COLOR=red]red[/COLOR]", "bold it red"),
        ("[IMG]elog:/2[/IMG] [img size=40]elog:/9[/img]", "![](two.png) ![](elog:/9)"),
        ("[URL]http://x.org[/URL] [URL=http://y.org]y[/URL]", "http://x.org [y](http://y.org)"),
        ("[LIST]\n[*]a\n[*] b\n[/LIST]", "\n- a\n- b\n"),
        ("x[CODE]\na[0] = [B]\n[/CODE]y", "x\n```\na[0] = [B]\n```\ny"),
        ('[TABLE border="1"]\nA|B\n|-\n1|2\n[/TABLE]', "\n| A | B |\n| --- | --- |\n| 1 | 2 |\n"),
        ('[QUOTE="ann"]so[/QUOTE]', "\n> ann wrote:\n> so\n"),
        ("a [1] and [x] and [B", "a [1] and [x] and [B"),
    ],
)
def test_elcode_becomes_markdown(elcode: str, markdown: str) -> None:
    assert elcode_to_markdown(elcode, ["one.png", "two.png"]) == markdown


def test_pages_that_are_files_of_elog(elogd: ElogServer, diary: Book) -> None:
    elogd.write("see the files", 1)
    page = b"<html><body>A page of its own</body></html>"
    elogd.attach(1, "report.html", page)
    elogd.attach(1, "found.txt", b"The pump was not found on this server rack")
    assert next(diary.blobs[a.sha256] for a in diary.records()["1"].attachments) == page
    assert len(diary.blobs) == 2


@pytest.mark.parametrize("piece", ["[quote]", "[table]a|-", "[url=a]", "[code]", "[img", "[size=", " [*", "[table]\n|"])
def test_hostile_elcode_takes_no_longer_than_its_length(piece: str) -> None:
    started = time.monotonic()
    elcode_to_markdown(piece * 30_000 + "[/table]", [])
    assert time.monotonic() - started < 3
