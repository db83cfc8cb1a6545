"""Teams channels: threads out of messages, what hangs on them, and what is no message."""

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aps_rag_pipeline.records import Link, Record, content_hash
from aps_rag_pipeline.settings import Feed, Limits
from aps_rag_pipeline.sources.base import Change, Complete, Cursor, Failure, Ignored, SourceContext, Upsert
from aps_rag_pipeline.sources.teams import FORMS
from aps_rag_pipeline.stores.blobs import BlobStore

PNG = b"\x89PNG\r\n\x1a\n" + b"1" * 20


class Export:
    """An export of one or more channels under a test's own folder."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "export"
        self.folder.mkdir()
        self.blobs = BlobStore(home / "blobs")

    def put(self, name: str, content: Any) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    def page(self, *messages: dict[str, Any], name: str = "controls/rf/page.json") -> Path:
        return self.put(name, {"@odata.context": "x", "value": list(messages)})

    def source(self, **feed: Any) -> Any:
        made = Feed(name="chat", source="teams", **{"location": self.folder, **feed})
        return FORMS["files"](made, SourceContext(ZoneInfo("America/Chicago"), self.blobs, Limits()))

    def changes(self, cursor: Any = None, **feed: Any) -> list[Change]:
        return list(self.source(**feed).changes(cursor))

    def records(self, **feed: Any) -> dict[str, Record]:
        return {change.record.id: change.record for change in self.changes(**feed) if isinstance(change, Upsert)}

    def only(self) -> Record:
        (record,) = self.records().values()
        return record


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path)


def message(number: int, content: str = "hello", parent: int | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": str(1_700_000_000_000 + number),
        "replyToId": None if parent is None else str(1_700_000_000_000 + parent),
        "etag": str(1_700_000_000_000 + number),
        "messageType": "message",
        "createdDateTime": f"2025-01-15T18:{number:02d}:00.08Z",
        "lastModifiedDateTime": f"2025-01-15T18:{number:02d}:00.1234567Z",
        "lastEditedDateTime": None,
        "deletedDateTime": None,
        "subject": None,
        "webUrl": f"https://teams/l/{number}?parentMessageId=17000000000{number if parent is None else parent:02d}",
        "from": {"application": None, "user": {"id": "8ea0e38b-efb3", "displayName": "Robin Kline"}},
        "body": {"contentType": "html", "content": content},
        "attachments": [],
        "mentions": [],
        "reactions": [],
        **more,
    }


def of(kind: type, changes: list[Change]) -> list[Any]:
    return [change for change in changes if isinstance(change, kind)]


def test_a_thread_is_one_record_with_a_part_a_message(export: Export) -> None:
    mention = [{"id": 0, "mentionText": "Jane Smith"}]
    export.page(
        message(1, "<p>Klystron <b>RF2</b> tripped</p><p>see WRQ 20417</p>", subject="RF2 down", importance="urgent"),
        message(3, 'ask <at id="0">Jane Smith</at> <emoji alt="👍"></emoji>', 1, mentions=mention),
        message(2, "a < b, S-DCCT:CurrentM", 1, body={"contentType": "text", "content": "a < b, S-DCCT:CurrentM"}),
    )
    record = export.only()
    assert record.id == "rf/1700000000001"
    assert record.title == "RF2 down"
    assert [(part.kind, part.locator, part.text) for part in record.parts] == [
        ("transcript", "message 1700000000001", "Robin Kline, 2025-01-15 12:01: Klystron RF2 tripped\n\nsee WRQ 20417"),
        ("transcript", "message 1700000000002", "Robin Kline, 2025-01-15 12:02: a < b, S-DCCT:CurrentM"),
        ("transcript", "message 1700000000003", "Robin Kline, 2025-01-15 12:03: ask @Jane Smith 👍"),
    ]
    assert record.fields == {
        "channel": "rf",
        "team": "controls",
        "message_count": 3,
        "participants": ["Robin Kline"],
        "mentions": ["Jane Smith"],
        "subject": "RF2 down",
        "importance": "urgent",
    }
    assert {link.target for link in record.links} == {"WRQ:20417", "S-DCCT:CurrentM"}
    assert str(record.created_at) == "2025-01-15 18:01:00.080000+00:00"


def test_reactions_change_no_content_and_an_edit_does(export: Export) -> None:
    export.page(message(1))
    before = export.only()
    export.page(message(1, etag="2", lastModifiedDateTime="2025-02-01T00:00:00Z", reactions=[{"reactionType": "like"}]))
    assert content_hash(export.only()) == content_hash(before)
    export.page(message(1, "hello again", lastEditedDateTime="2025-02-02T00:00:00.1Z"))
    edited = export.only()
    assert content_hash(edited) != content_hash(before)
    assert str(edited.modified_at) == "2025-02-02 00:00:00.100000+00:00"


def test_a_late_reply_in_another_file_joins_its_thread(export: Export) -> None:
    export.page(message(1), message(2, "other"))
    first = export.changes()
    export.put("controls/rf/replies.jsonl", json.dumps(message(5, "late", 1)).encode())
    later = export.changes(of(Cursor, first)[0].value)
    records = {upsert.record.id: upsert.record for upsert in of(Upsert, later)}
    assert [part.locator[-1] for part in records["rf/1700000000001"].parts] == ["1", "5"]
    assert of(Complete, later)[0].unit == "controls/rf"


def test_replies_inside_their_root_replies_to_replies_and_orphans(export: Export) -> None:
    nested = message(2, "nested", None, webUrl=None)
    export.page(message(1, replies=[nested]), message(3, "to the reply", 2), message(9, "orphan", 8))
    records = export.records()
    assert len(records["rf/1700000000001"].parts) == 3
    orphan = records["rf/1700000000008"]
    assert orphan.fields["first_message_missing"] is True
    assert orphan.title == "orphan"
    export.page(message(8, "found"), name="controls/rf/older.json")
    assert len(export.records()["rf/1700000000008"].parts) == 2


def test_where_reply_and_address_differ_the_known_message_wins(export: Export) -> None:
    differing = message(3, "reply", 77)
    differing["webUrl"] = "https://teams/l/3?parentMessageId=1700000000001"
    only_address = message(4, "reply too", None, webUrl="https://teams/l/4?parentMessageId=1700000000001")
    export.page(message(1), differing, only_address, message(5, "ring", 6), message(6, "ring", 5))
    records = export.records()
    assert len(records["rf/1700000000001"].parts) == 3
    assert len(records["rf/1700000000005"].parts) == 2


def test_silent_messages_are_counted_and_deleted_ones_drop_out(export: Export) -> None:
    gone = {"deletedDateTime": "2025-01-16T00:00:00.1Z", "body": {"contentType": "html", "content": ""}}
    event = {"from": None, "body": {"contentType": "html", "content": "<systemEventMessage/>"}}
    export.page(
        message(1, **gone),
        message(2, "still here", 1),
        message(3, **gone),
        message(4, messageType="systemEventMessage", eventDetail={"@odata.type": "x"}, **event),
        message(5, messageType="unknownFutureValue", **event),
        message(6, policyViolation={"dlpAction": "notifySender, blockAccess"}),
        message(7, "<p> </p>"),
    )
    changes = export.changes()
    (record,) = [upsert.record for upsert in of(Upsert, changes)]
    assert (record.id, record.title, len(record.parts)) == ("rf/1700000000001", "still here", 1)
    assert "first_message_missing" not in record.fields
    assert str(record.modified_at) == "2025-01-16 00:00:00.100000+00:00"
    assert Counter(ignored.reason for ignored in of(Ignored, changes)) == {
        "a deleted message": 2,
        "a system event": 1,
        "a message of the unknown type unknownFutureValue": 1,
        "a message that a data loss policy blocks": 1,
        "a message without text": 1,
    }


@pytest.mark.parametrize(
    ("sender", "author"),
    [
        (None, ""),
        ({"user": None, "application": {"displayName": "Alarm bot"}}, "Alarm bot"),
        ({"user": {"id": "8ea0e38b-efb3-4757", "displayName": None}}, "user 8ea0e38b"),
    ],
)
def test_senders_of_every_kind(export: Export, sender: Any, author: str) -> None:
    export.page(message(1, **{"from": sender}))
    record = export.only()
    assert record.author == author
    assert record.parts[0].text == (f"{author}, " if author else "") + "2025-01-15 12:01: hello"


def test_the_newest_state_of_a_message_counts_wherever_it_stands(export: Export) -> None:
    newer = message(1, "second thought", lastModifiedDateTime="2025-01-16T00:00:00Z", etag="9")
    export.page(newer, name="controls/rf/a.json")
    export.page(message(1, "first thought"), message(2), name="controls/rf/b.json")
    export.page(message(2), message(2, "no reason to differ"), name="controls/rf/c.json")
    changes = export.changes()
    assert of(Upsert, changes)[0].record.parts[0].text.endswith("second thought")
    assert [ignored.reason.split(" at ")[0] for ignored in of(Ignored, changes)] == [
        "an older state of the message",
        "the same message as",
    ]
    (failure,) = of(Failure, changes)
    assert "controls/rf/b.json: message 2" in failure.reason


def test_pictures_are_attached_to_their_message(export: Export) -> None:
    image = '<p>look</p><img alt="image" src="https://graph/messages/1/hostedContents/{}/$value">'
    data = "data:image/png;base64," + base64.b64encode(PNG + b"c").decode()
    export.page(
        message(1, image.format("aWQ9eF8wL%3D")),
        message(2, image.format("plain"), 1),
        message(3, f'<img alt="Scope of RF2" src="{data}"><img alt="logo" src="http://x.org/logo.png">', 1),
        message(
            4,
            '<img src="../hostedContents/1/$value">',
            1,
            hostedContents=[
                {"@microsoft.graph.temporaryId": "1", "contentBytes": base64.b64encode(PNG + b"d").decode()}
            ],
        ),
        message(5, image.format("renamed"), 1),
    )
    folder = "controls/rf/hostedContents"
    export.put(f"{folder}/1700000000001/aWQ9eF8wL=.png", PNG + b"a")
    export.put(f"{folder}/plain.jpg", PNG + b"b")
    export.put(f"{folder}/1700000000005/screenshot 1.png", PNG + b"e")
    record = export.only()
    assert [(a.part, a.name, a.media_type, export.blobs.get(a.sha256)[-1:]) for a in record.attachments] == [
        (0, "aWQ9eF8wL=.png", "image/png", b"a"),
        (1, "plain.jpg", "image/png", b"b"),
        (2, "message-1700000000003-1.png", "image/png", b"c"),
        (3, "message-1700000000004-1.png", "image/png", b"d"),
        (4, "screenshot 1.png", "image/png", b"e"),
    ]
    assert record.parts[0].text.endswith("look\n\n[picture]")
    assert record.parts[2].text.endswith("[picture: Scope of RF2] [picture: logo]")
    assert Link("url", "http://x.org/logo.png", "logo") in record.links


def test_a_missing_picture_is_remembered_and_read_when_it_comes(export: Export) -> None:
    export.page(
        message(1, '<img src="https://graph/hostedContents/abc/$value">'),
        message(2, '<img src="https://graph/hostedContents/..%2F..%2Fsecret/$value">', 1),
    )
    export.put("secret", b"not yours")
    changes = export.changes()
    (record,) = [upsert.record for upsert in of(Upsert, changes)]
    assert (record.title, record.attachments) == ("Thread in rf", ())
    first, second = of(Failure, changes)
    assert first.record_id == second.record_id == "rf/1700000000001"
    assert not first.permanent
    assert "hostedContents/1700000000001/abc.<ext> beside controls/rf/page.json" in first.remedy
    export.put("controls/rf/hostedContents/1700000000001/abc.png", PNG)
    retried = list(export.source().changes(of(Cursor, changes)[0].value, frozenset(("controls/rf",))))
    assert len(of(Upsert, retried)[0].record.attachments) == 1


def test_cards_quotes_files_and_code_are_read_in_their_places(export: Export) -> None:
    card = {
        "type": "AdaptiveCard",
        "speak": "not this",
        "body": [
            {"type": "TextBlock", "text": "Alarm on RF2"},
            {"type": "ColumnSet", "columns": [{"items": [{"type": "TextBlock", "text": "Sector 38"}]}]},
            {"type": "FactSet", "facts": [{"title": "PV:", "value": "S38:RF2:Trip"}]},
        ],
        "actions": [{"type": "Action.OpenUrl", "title": "Open", "url": "https://alarms/77"}],
    }
    quote = {
        "messageId": "1700000000001",
        "messagePreview": "who is on call?",
        "messageSender": {"user": {"displayName": "Jane"}},
    }
    attachments = [
        {"id": "q", "contentType": "messageReference", "content": json.dumps(quote)},
        {"id": "f", "contentType": "reference", "contentUrl": "https://sp/Budget%201.docx", "name": "Budget.docx"},
        {
            "id": "c",
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": json.dumps(card).replace(", ", ",\r\n"),
        },
        {"id": "x", "contentType": "application/vnd.microsoft.card.thumbnail", "content": "{broken <b>card"},
    ]
    body = (
        '<attachment id="q"></attachment><p>I am. <attachment id="f"></attachment></p>'
        '<attachment id="lost"></attachment>'
        "<codeblock><code>caget X<br>caput Y</code></codeblock><table><tr><td>a</td><td>b</td></tr></table>"
    )
    export.page(message(1, "who is on call?"), message(2, body, attachments=attachments))
    record = export.records()["rf/1700000000002"]
    assert [(part.kind, part.text) for part in record.parts] == [
        (
            "transcript",
            "Robin Kline, 2025-01-15 12:02: > Jane: who is on call?\n\nI am.\n\n[file: Budget.docx]",
        ),
        ("code", "caget X\ncaput Y"),
        ("table", "| a | b |\n| --- | --- |"),
        ("transcript", "Alarm on RF2\nSector 38\nPV: S38:RF2:Trip\n\n{broken card"),
    ]
    assert {(link.kind, link.target) for link in record.links} == {
        ("file", "https://sp/Budget%201.docx"),
        ("url", "https://alarms/77"),
        ("process_variable", "S38:RF2:Trip"),
        ("chat", "TEAMS:rf/1700000000001"),
    }


def test_a_broken_file_hides_neither_the_others_nor_what_was_there(export: Export) -> None:
    export.page(message(1), message(3, "orphan", 2))
    export.put("controls/rf/cut.json", b'{"value": [{"id": "17')
    export.put("controls/rf/error.json", {"error": {"code": "TooManyRequests", "message": "try later"}})
    export.page(message(1), name="controls/vacuum/page.json")
    changes = export.changes()
    assert {upsert.record.id for upsert in of(Upsert, changes)} == {"rf/1700000000001", "vacuum/1700000000001"}
    assert [change.unit for change in of(Complete, changes)] == ["controls/vacuum"]
    reasons = {failure.item: failure.reason for failure in of(Failure, changes)}
    assert "cut off" in reasons["controls/rf/cut.json"]
    assert "try later" in reasons["controls/rf/error.json"]
    # The root may stand in the broken file: the old version of this thread is kept until it can be read.
    assert "rf/1700000000002" in reasons


def test_the_name_of_a_channel_comes_from_its_folder(export: Export) -> None:
    path = export.page(message(1), name="Ops Team/RF & Timing/page.json")
    assert list(export.records()) == ["rf-timing/1700000000001"]
    assert list(export.records(location=path.parent)) == ["rf-timing/1700000000001"]
    assert list(export.records(location=path, url_template="https://t/{id}")) == ["page/1700000000001"]


def test_what_is_no_message_is_counted_or_named(export: Export) -> None:
    export.page()
    export.put("controls/rf/hosted.json", {"value": [{"id": "x", "contentBytes": None, "contentType": None}]})
    export.put("controls/rf/other.json", [{"body": {"content": "no id"}}, {"displayName": "General"}, 7])
    changes = export.changes()
    assert {ignored.reason for ignored in of(Ignored, changes)} == {
        "a page without messages",
        "hosted content, which belongs to a message elsewhere",
    }
    assert [failure.place.split(": ")[1] for failure in of(Failure, changes)] == ["message 1", "message 2", "message 3"]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "body", "content", "contentType", "attachments", "from", "replies", "messageType"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@given(_json)
@settings(max_examples=80, deadline=None)
def test_no_json_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    export = Export(tmp_path_factory.mktemp("any"))
    export.put("a/b/x.json", value)
    assert not [failure for failure in of(Failure, export.changes()) if "could not be parsed" in failure.reason]


@given(st.permutations(range(6)), st.lists(st.integers(0, 5), min_size=6, max_size=6))
@settings(max_examples=40, deadline=None)
def test_threads_do_not_depend_on_the_order_of_messages(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], parents: list[int]
) -> None:
    def read(numbers: list[int]) -> dict[str, list[str]]:
        export = Export(tmp_path_factory.mktemp("order"))
        export.page(*(message(n, f"says {n}", parents[n] if parents[n] != n else None) for n in numbers))
        return {key: [part.text for part in record.parts] for key, record in export.records().items()}

    found = read(order)
    assert found == read(sorted(order))
    assert sum(len(parts) for parts in found.values()) == 6


def test_every_real_sample_ends_as_a_record_a_count_or_a_named_failure(export: Export, shared: Path) -> None:
    changes = export.changes(location=shared / "teams")
    records = {upsert.record.id: upsert.record for upsert in of(Upsert, changes)}
    assert len(records) == 23
    assert Counter(failure.reason[:9] for failure in of(Failure, changes)) == {"a message": 23, "picture 1": 4}
    assert Counter(ignored.reason[:16] for ignored in of(Ignored, changes)) == {
        "the same message": 20,
        "hosted content, ": 12,
        "a message of the": 1,
        "not a kind of fi": 1,  # the note on where the samples are from
    }
    lines = sum(1 for _ in (shared / "teams" / "all_messages.jsonl").open(encoding="utf-8"))
    own = [c for c in changes if getattr(c, "place", "").startswith("all_messages.jsonl")]
    pictures = [failure for failure in of(Failure, own) if failure.record_id]
    replies = sum(len(record.parts) - 1 for key, record in records.items() if key.startswith("teams/"))
    assert len(own) - len(pictures) + replies == lines
    thread = records["teams/1616989510408"]
    assert [part.text.rsplit(": ", 1)[1] for part in thread.parts] == [
        "Hello World 28th March 2021",
        "Reply1",
        "Reply3",
    ]
