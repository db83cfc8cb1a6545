"""Teams channels over Microsoft Graph: its habits and its faults, against a service on loopback."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from werkzeug.wrappers import Request, Response

from aps_rag_pipeline.demo.live.msgraph import Channel, MemoryStore, Server, Team, put
from aps_rag_pipeline.demo.write import write
from aps_rag_pipeline.records import FORMER_IDS, Record
from aps_rag_pipeline.settings import Feed, Limits, Network
from aps_rag_pipeline.sources.base import (
    Change,
    Complete,
    Cursor,
    Failure,
    FeedError,
    Ignored,
    SourceContext,
    Upsert,
)
from aps_rag_pipeline.sources.teams import FORMS
from aps_rag_pipeline.stores.blobs import BlobStore
from tests.live_cases.teams_graph import ID, message, moment
from tests.serving import FaultyServer, serving

QUICK = Network(timeout_s=0.3, deadline_s=2, attempts=3, backoff_s=0.001)
PNG = b"\x89PNG\r\n\x1a\n" + b"1" * 20
TOKEN = "graph-token-of-the-tests"
Twist = Callable[[str, dict[str, Any]], dict[str, Any] | None]


class Office:
    """Two teams, the first with two channels; `twist` may change any JSON answer by its path and query."""

    def __init__(self, home: Path) -> None:
        self.rf, self.vacuum, self.general = (
            Channel(f"19:{name.lower()}@thread.tacv2", name) for name in ("RF", "Vacuum", "General")
        )
        self.store = MemoryStore([Team("t1", "Operations", [self.rf, self.vacuum]), Team("t2", "Ops", [self.general])])
        self.graph = Server(self.store)
        self.graph.tokens = {TOKEN}
        self.twist: Twist | None = None
        self.home = home
        (home / "token").write_text(TOKEN)
        self.blobs = BlobStore(home / "blobs")
        self.server: FaultyServer
        self.cursor: Any = None

    def __call__(self, environ: Any, start_response: Any) -> Any:
        if self.twist is None:
            return self.graph(environ, start_response)
        request = Request(environ)
        reply = Response.from_app(self.graph, environ)
        if reply.mimetype == "application/json" and reply.status_code == 200:
            twisted = self.twist(request.full_path, json.loads(reply.get_data()))
            if twisted is not None:
                reply.set_data(json.dumps(twisted))
        return reply(environ, start_response)

    def context(self, network: Network = QUICK) -> SourceContext:
        return SourceContext(ZoneInfo("America/Chicago"), self.blobs, Limits(), network)

    def source(self, network: Network = QUICK, **more: Any) -> Any:
        values: dict[str, Any] = {
            "url": self.server.url,
            "credentials": {"token": {"file": str(self.home / "token")}},
            **more,
        }
        feed = Feed.model_validate({"name": "chat", "source": "teams", "form": "graph", **values})
        return FORMS["graph"](feed, self.context(network))

    def changes(self, retry: frozenset[str] = frozenset(), **more: Any) -> list[Change]:
        """What moved since the last call."""
        self.server.forget()
        found = list(self.source(**more).changes(self.cursor, retry))
        self.cursor = of(Cursor, found)[0].value
        return found

    def records(self, **more: Any) -> dict[str, Record]:
        return records(list(self.source(**more).changes(None)))


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path)
    with serving(made) as made.server:
        yield made


@pytest.fixture
def busy(office: Office) -> Office:
    """With a thread in each channel, read once."""
    for number, channel in enumerate((office.rf, office.vacuum, office.general), 1):
        put(channel, [message(number, f"thread {number}"), message(number + 10, f"reply {number}", parent=number)])
    assert len(of(Upsert, office.changes())) == 3
    return office


def of(kind: type, changes: list[Change]) -> list[Any]:
    return [change for change in changes if isinstance(change, kind)]


def records(changes: list[Change]) -> dict[str, Record]:
    return {change.record.id: change.record for change in of(Upsert, changes)}


def text(record: Record) -> str:
    return "\n".join(part.text for part in record.parts)


def moved(changes: list[Change]) -> list[str]:
    return [change.record.id.rpartition("/")[2][-2:] for change in of(Upsert, changes)]


# the whole


def test_records_equal_those_of_the_file_form_and_follow_its_files(tmp_path: Path) -> None:
    write(tmp_path / "demo", seed=7, records=300)
    folder = tmp_path / "demo" / "feeds" / "teams"
    office = Office(tmp_path)
    files = FORMS["files"](Feed(name="chat", source="teams", location=folder), office.context())
    with serving(Server.of_folder(folder)) as office.server:
        wanted = records(list(files.changes(None)))
        first = office.changes()
        assert records(first) == wanted
        assert sum(len(record.attachments) for record in wanted.values()) > 5
        assert not of(Failure, first)
        again = office.changes()
        assert [type(change) for change in again if not isinstance(change, Ignored)] == [Cursor]
        assert not office.server.asked("hostedContents")
        path = next(folder.rglob("*.json"))
        page = json.loads(path.read_bytes())
        root = next(each for each in page["value"] if each["messageType"] == "message")
        late = {**root, "id": str(int(root["id"]) + 5), "replyToId": root["id"], "body": {"content": "a late reply"}}
        page["value"].append(late)
        path.write_text(json.dumps(page))
        assert "a late reply" in text(next(iter(records(office.changes()).values())))


def test_a_no_op_costs_a_request_for_each_fifty_threads(office: Office) -> None:
    put(office.rf, [message(number, f"thread {number}") for number in range(200)])
    put(office.rf, [message(5000 + number, "yes", parent=number) for number in range(200)])
    office.store.found = [Team("t1", "Operations", [office.rf])]
    assert len(of(Upsert, office.changes())) == 200
    assert len(of(Upsert, office.changes())) == 0
    # Teams, channels, four pages, and the empty page that the last full one links to.
    assert len(office.server.requests) == 1 + 1 + 4 + 1


def test_nothing_is_left_running(busy: Office) -> None:
    import threading

    busy.changes()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith(("graph-", "asyncio"))]
    assert left == []


def exported(office: Office, home: Path) -> dict[str, Record]:
    """The records of the same teams in file form."""
    for team in office.store.found:
        for channel in team.channels:
            folder = home / team.name / channel.name
            folder.mkdir(parents=True, exist_ok=True)
            replies = [reply for below in channel.replies.values() for reply in below.values()]
            (folder / "page.json").write_text(json.dumps({"value": [*channel.messages.values(), *replies]}))
    return records(
        list(FORMS["files"](Feed(name="chat", source="teams", location=home), office.context()).changes(None))
    )


def test_real_samples_give_the_records_of_the_file_form(office: Office, shared: Path, tmp_path: Path) -> None:
    for line in (shared / "teams" / "all_messages.jsonl").read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        if sample.get("id") and not sample.get("chatId"):
            put(office.rf, [sample])
    found = office.records()
    assert len(found) > 10
    assert found == exported(office, tmp_path / "export")


_said = st.tuples(
    st.integers(0, 5),  # the first message of its thread, or its own number
    st.sampled_from(["trip", "see WRQ 20417", "", "<b>S-DCCT:CurrentM</b>", "a<br>b"]),
    st.sampled_from(["", "deleted", "event", "bot", "edited"]),
    st.sampled_from(["RF", "General"]),
    st.sampled_from([0, 1]),
)


@given(st.lists(_said, max_size=14), st.booleans())
@settings(max_examples=12, deadline=None)
def test_both_forms_give_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, str, str, str, int]], same: bool
) -> None:
    home = tmp_path_factory.mktemp("both")
    office = Office(home)
    office.rf.name, office.vacuum.name, office.general.name = "RF", "General", "General" if same else "Vacuum"
    for number, (parent, words, kind, name, team) in enumerate(said):
        channel = office.general if team else office.rf if name == "RF" else office.vacuum
        root = str(ID + parent)
        made = message(number, words, parent=parent if root in channel.messages else None, event=kind == "event")
        if kind == "deleted":
            made |= {"deletedDateTime": moment(59), "from": None, "body": {"contentType": "html", "content": ""}}
        if kind == "bot":
            made["from"] = {"application": {"displayName": "Alarm bot"}, "user": None}
        if kind == "edited":
            made["lastEditedDateTime"] = moment(50)
        put(channel, [made])
    with serving(office) as office.server:
        assert office.records() == exported(office, home / "export")


def test_one_policy_of_retries_acts_and_nothing_is_told_of_the_machine(office: Office) -> None:
    office.server.fail("status", status=503, times=-1)
    with pytest.raises(FeedError, match="status 503"):
        office.changes()
    assert len(office.server.requests) == QUICK.attempts
    assert office.server.headers[-1]["USER_AGENT"] == QUICK.user_agent
    assert not {"HOSTOS", "SDKVERSION", "RUNTIMEENVIRONMENT"} & office.server.headers[-1].keys()


def test_reading_files_loads_no_client() -> None:
    asked = (
        "import sys, aps_rag_pipeline.sources.teams; print([m for m in ('msgraph_core', 'httpx') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


# what moves


def test_a_late_reply_to_an_old_thread_is_found(busy: Office) -> None:
    put(busy.rf, [message(900, "newer"), message(50, "two years late", parent=1)])
    found = records(busy.changes())
    assert sorted(found) == [f"rf/{ID + 1}", f"rf/{ID + 900}"]
    assert text(found[f"rf/{ID + 1}"]).endswith("two years late")


def test_reactions_move_nothing_and_words_do(busy: Office) -> None:
    root = busy.rf.messages[str(ID + 1)]
    like = [{"reactionType": "like", "createdDateTime": moment(1), "user": {"user": {"id": "x"}}}]
    root |= {"reactions": like, "etag": "9", "lastModifiedDateTime": moment(50)}
    assert moved(busy.changes()) == []
    steps = [
        {"body": {"contentType": "html", "content": "<p>corrected</p>"}, "lastEditedDateTime": moment(51)},
        {"body": {"contentType": "html", "content": "<p>thread 1</p>"}},
        {"subject": "Trip"},
        {"from": {"application": {"displayName": "Alarm bot"}, "user": None}},
        {"from": {"application": None, "user": {"id": "8ea0e38b-efb3", "displayName": None}}},
    ]
    seen = []
    for step in steps:
        root |= step
        (record,) = records(busy.changes()).values()
        seen.append((record.title, record.author))
    assert seen[0][0] == "corrected"
    assert seen[2:] == [("Trip", "Robin Kline"), ("Trip", "Alarm bot"), ("Trip", "user 8ea0e38b")]


def test_deleted_messages_and_threads_go(busy: Office) -> None:
    gone = {"deletedDateTime": moment(59), "from": None, "body": {"contentType": "html", "content": ""}}
    busy.rf.replies[str(ID + 1)][str(ID + 11)] |= gone
    (record,) = records(busy.changes()).values()
    assert "reply 1" not in text(record)
    busy.rf.messages[str(ID + 1)] |= gone
    changes = busy.changes()
    assert of(Upsert, changes) == []
    assert [change.unit for change in of(Complete, changes)] == [f"t1/{busy.rf.id}/{ID + 1}"]
    del busy.rf.messages[str(ID + 1)]
    changes = busy.changes()
    assert [change.unit for change in of(Complete, changes)] == [f"t1/{busy.rf.id}/{ID + 1}"]
    assert of(Failure, changes) == []


def test_what_no_reader_sees_is_counted(office: Office) -> None:
    card = {"type": "AdaptiveCard", "body": [{"type": "TextBlock", "text": "Alarm on RF2"}]}
    cards = [{"id": "c", "contentType": "application/vnd.microsoft.card.adaptive", "content": json.dumps(card)}]
    put(
        office.rf,
        [
            message(1, event=True),
            message(2, messageType="unknownFutureValue"),
            message(3, '<attachment id="c"></attachment>', attachments=cards),
        ],
    )
    changes = office.changes()
    (record,) = records(changes).values()
    assert record.parts[0].text.endswith("Alarm on RF2")
    assert sorted(ignored.reason for ignored in of(Ignored, changes)) == [
        "a message of the unknown type unknownFutureValue",
        "a system event",
    ]
    assert moved(office.changes()) == []


def test_a_quoted_message_leads_to_its_thread(busy: Office) -> None:
    quote = {"messageId": str(ID + 11), "messagePreview": "reply 1", "messageSender": {"user": {"displayName": "R"}}}
    quotes = [{"id": "q", "contentType": "messageReference", "content": json.dumps(quote)}]
    put(busy.rf, [message(5, '<attachment id="q"></attachment><p>so it is</p>', attachments=quotes)])
    (record,) = records(busy.changes()).values()
    assert [link.target for link in record.links if link.kind == "chat"] == [f"TEAMS:rf/{ID + 1}"]


def test_what_is_written_during_a_scan_is_found_now_or_next_time(busy: Office) -> None:
    def written_meanwhile(path: str, answer: dict[str, Any]) -> None:
        if "/messages?" in path and busy.rf.id in path.replace("%3A", ":").replace("%40", "@"):
            put(busy.rf, [message(20, "meanwhile"), message(21, "to the old one", parent=1)])

    busy.twist = written_meanwhile
    busy.changes()
    busy.twist = None
    assert sorted(records(busy.changes())) == [f"rf/{ID + 1}", f"rf/{ID + 20}"]
    assert moved(busy.changes()) == []


def test_clocks_decide_nothing(busy: Office) -> None:
    for year in ("1999", "2099"):
        odd = message(int(year), f"written in {year}")
        odd["createdDateTime"] = odd["lastModifiedDateTime"] = f"{year}-01-01T00:00:00Z"
        put(busy.rf, [odd])
        assert len(of(Upsert, busy.changes())) == 1


# paging


def test_replies_beyond_the_first_come_by_their_link_or_are_asked_for(office: Office) -> None:
    office.graph.most_replies = 2
    put(office.rf, [message(1, "first")])
    put(office.rf, [message(10 + number, f"reply {number}", parent=1) for number in range(45)])
    (record,) = office.records().values()
    assert len(record.parts) == 46

    def unexpanded(path: str, answer: dict[str, Any]) -> dict[str, Any]:
        drop = ("replies", "replies@odata.nextLink", "replies@odata.count")
        return {**answer, "value": [{k: v for k, v in each.items() if k not in drop} for each in answer["value"]]}

    office.twist = lambda path, answer: unexpanded(path, answer) if "$expand" in path.replace("%24", "$") else None
    office.server.forget()
    assert office.records() == {record.id: record}
    assert len(office.server.asked(r"/replies\?")) == 1


def in_channel(channel: Channel, path: str) -> bool:
    return "/messages?" in path and channel.id in path.replace("%3A", ":").replace("%40", "@")


@pytest.mark.parametrize(("fresh", "said"), [(False, "leads back"), (True, "the listing has no end")])
def test_links_that_never_end_are_an_outage_of_the_channel(busy: Office, fresh: bool, said: str) -> None:
    number = iter(range(10**6))

    def endless(path: str, answer: dict[str, Any]) -> dict[str, Any] | None:
        if not in_channel(busy.rf, path):
            return None
        count = -next(number) if fresh else 0  # the service takes a token below zero for the beginning
        link = f"{busy.server.url}/v1.0/teams/t1/channels/{busy.rf.id}/messages?$expand=replies&$skiptoken={count}"
        return {**answer, "@odata.nextLink": link}

    busy.twist = endless
    put(busy.vacuum, [message(30, "elsewhere")])
    changes = busy.changes()
    assert moved(changes) == ["30"]
    (failure,) = of(Failure, changes)
    assert failure.unit == f"t1/{busy.rf.id}"
    assert said in failure.reason
    assert len(busy.server.asked(busy.rf.id)) < 30
    assert [change.unit.split("/")[1] for change in of(Complete, changes)] == [busy.vacuum.id]
    busy.twist = None
    assert moved(busy.changes()) == []


def test_an_empty_page_is_not_the_last(office: Office) -> None:
    put(office.rf, [message(number, f"thread {number}") for number in range(60)])

    def holed(path: str, answer: dict[str, Any]) -> dict[str, Any] | None:
        if in_channel(office.rf, path) and "skiptoken" not in path:
            first = f"{office.server.url}/v1.0/teams/t1/channels/{office.rf.id}/messages?$top=50&$skiptoken=0"
            return {**answer, "value": [], "@odata.nextLink": first}
        return None

    office.twist = holed
    assert len(office.records()) == 60


def test_a_page_that_comes_twice_and_one_that_is_missing_lose_nothing(office: Office) -> None:
    put(office.rf, [message(number, f"thread {number}") for number in range(120)])
    assert len(of(Upsert, office.changes())) == 120

    def skip(path: str, answer: dict[str, Any]) -> dict[str, Any] | None:
        at = {"50": "0", "100": "100"}
        for seen, then in at.items():
            if in_channel(office.rf, path) and f"skiptoken={seen}" in path and then == "0":
                return {**answer, "value": answer["value"][:0]}
        return None

    office.twist = skip
    changes = office.changes()
    assert of(Complete, changes) == of(Upsert, changes) == []
    assert len(of(Failure, changes)) == 50
    assert "answers when it is asked for" in of(Failure, changes)[0].reason
    repeated = (
        f"{office.server.url}/v1.0/teams/t1/channels/{office.rf.id}/messages?$expand=replies&$skiptoken=0&$top=50"
    )
    office.twist = lambda path, answer: (
        {**answer, "@odata.nextLink": repeated} if "skiptoken=100" in path and in_channel(office.rf, path) else None
    )
    assert moved(office.changes()) == []


def test_a_link_to_another_host_gets_no_token(busy: Office) -> None:
    with serving(busy.graph) as elsewhere:
        busy.twist = lambda path, answer: (
            {**answer, "@odata.nextLink": f"{elsewhere.url}/v1.0/teams"} if in_channel(busy.rf, path) else None
        )
        (failure,) = of(Failure, busy.changes())
        assert "leaves" in failure.reason
        assert elsewhere.requests == []


# parts that fail


def test_a_channel_that_is_refused_keeps_its_threads_and_stops_no_other(busy: Office) -> None:
    busy.server.fail("status", status=403, path=rf"{busy.rf.id}/messages", times=-1)
    put(busy.vacuum, [message(30, "elsewhere")])
    changes = busy.changes()
    assert moved(changes) == ["30"]
    (failure,) = of(Failure, changes)
    assert (failure.unit, failure.item, failure.permanent) == (f"t1/{busy.rf.id}", f"t1/{busy.rf.id}", False)
    assert "ChannelMessage.Read.All" in failure.remedy
    put(busy.rf, [message(40, "told while it was closed")])
    busy.server.faults.clear()
    assert moved(busy.changes()) == ["40"]


@pytest.mark.parametrize("fault", ["status", "torn", "html", "hang"])
def test_a_channel_that_is_out_of_order_is_listed_the_next_time(busy: Office, fault: str) -> None:
    busy.server.fail(fault, path=rf"{busy.rf.id}/messages", times=-1)
    put(busy.rf, [message(40, "told meanwhile")])
    changes = busy.changes()
    assert [failure.unit for failure in of(Failure, changes)] == [f"t1/{busy.rf.id}"]
    assert of(Complete, changes) == []
    busy.server.faults.clear()
    assert moved(busy.changes()) == ["40"]


def test_an_error_in_the_guise_of_a_page_is_none(busy: Office) -> None:
    said = {"error": {"code": "UnknownError", "message": "the back end is away"}}
    busy.twist = lambda path, answer: said if in_channel(busy.rf, path) else None
    changes = busy.changes()
    assert "the back end is away" in of(Failure, changes)[0].reason
    assert of(Complete, changes) == []


def test_replies_that_cannot_be_listed_fail_their_thread_alone(busy: Office) -> None:
    busy.graph.most_replies = 1
    put(busy.rf, [message(12, "one more", parent=1), message(30, "another thread")])
    busy.server.fail("status", path=rf"{ID + 1}/replies", times=-1)
    changes = busy.changes()
    assert moved(changes) == ["30"]
    assert [failure.unit for failure in of(Failure, changes)] == [f"t1/{busy.rf.id}/{ID + 1}"]
    busy.server.faults.clear()
    assert moved(busy.changes()) == ["01"]


def test_a_service_that_stops_answering_is_an_outage(busy: Office) -> None:
    cursor = busy.cursor

    def down_for_good(path: str, answer: dict[str, Any]) -> None:
        if path.startswith("/v1.0/teams/t2/channels"):
            busy.server.fail("reset", times=-1)

    busy.twist = down_for_good
    with pytest.raises(FeedError, match="no longer answers"):
        busy.changes()
    assert busy.cursor is cursor


def test_messages_without_id_and_what_is_no_message_are_named(busy: Office) -> None:
    nameless = {**message(7, "nobody"), "id": None}
    busy.rf.messages["x"] = nameless
    busy.rf.messages["y"] = {"id": "77", "displayName": "no message"}
    busy.rf.replies[str(ID + 1)]["z"] = {**message(8, "nor this", parent=1), "id": ""}
    changes = busy.changes()
    assert moved(changes) == ["01"]
    reasons = sorted(failure.reason for failure in of(Failure, changes))
    assert [reason.split(";")[0] for reason in reasons] == [
        "a message without id",
        "a message without id",
        "not a chat message",
    ]
    del busy.rf.messages["x"], busy.rf.messages["y"]
    assert of(Failure, busy.changes()) == []


def test_throttling_is_waited_for(busy: Office) -> None:
    put(busy.rf, [message(30, "more")])
    busy.server.fail("status", status=429, headers={"Retry-After": "0.05"}, path="messages", times=3)
    changes = busy.changes()
    assert (moved(changes), of(Failure, changes)) == (["30"], [])


# teams and channels


def test_no_team_where_there_were_some_is_an_outage(busy: Office) -> None:
    teams, busy.store.found = busy.store.found, []
    with pytest.raises(FeedError, match="no team is listed, but there were 2: Operations, Ops"):
        busy.changes()
    with pytest.raises(FeedError, match="nothing to read"):
        busy.source().check()
    busy.store.found = teams
    assert moved(busy.changes()) == []
    assert busy.source().check().units == 3


def test_a_team_or_channel_goes_when_it_says_so_itself(busy: Office) -> None:
    left = busy.store.found.pop(0)
    changes = busy.changes()
    assert sorted(change.unit[:2] for change in of(Complete, changes)) == ["t1", "t1"]
    assert of(Failure, changes) == []
    busy.store.found.append(left)
    assert len(of(Upsert, busy.changes())) == 2
    left.channels.remove(busy.rf)
    changes = busy.changes()
    assert [change.unit.split("/")[1] for change in of(Complete, changes)] == [busy.rf.id]
    assert len(busy.server.asked(busy.rf.id)) == 1


@pytest.mark.parametrize("level", ["/v1.0/teams", "/v1.0/teams/t1/channels"])
def test_a_team_or_channel_that_is_only_left_out_keeps_its_threads(busy: Office, level: str) -> None:
    busy.twist = lambda path, answer: {**answer, "value": answer["value"][1:]} if path.rstrip("?") == level else None
    for _ in range(2):
        changes = busy.changes()
        assert of(Complete, changes) == []
        (failure,) = of(Failure, changes)
        assert failure.unit in ("t1", f"t1/{busy.rf.id}")
        assert "it answers when it is asked for" in failure.reason
    busy.twist = None
    assert [change for change in busy.changes() if not isinstance(change, Cursor)] == []


def test_a_team_without_channels_is_not_believed(busy: Office) -> None:
    busy.twist = lambda path, answer: {**answer, "value": []} if "/t1/channels" in path else None
    changes = busy.changes()
    assert [failure.unit for failure in of(Failure, changes)] == ["t1"]
    assert of(Complete, changes) == []


def test_teams_are_chosen_by_name_or_id_and_let_go_when_no_longer_chosen(busy: Office) -> None:
    changes = busy.changes(options={"teams": ["operations"]})
    assert [change.unit.split("/")[0] for change in of(Complete, changes)] == ["t2"]
    changes = busy.changes(options={"teams": ["OPERATIONS", "t2"]})
    assert moved(changes) == ["03"]
    busy.store.found.pop()
    changes = busy.changes(options={"teams": ["Operations", "Ops"]})
    assert of(Complete, changes) == []
    assert "options.teams names 'Ops'" in of(Failure, changes)[0].reason


def test_teams_by_id_need_no_list_of_all(office: Office) -> None:
    guid = "11111111-2222-3333-4444-555555555555"
    office.store.found.append(Team(guid, "Closed", [Channel("19:x@thread.tacv2", "General")]))
    put(office.store.found[-1].channels[0], [message(1, "inside")])
    office.server.fail("status", status=403, path=r"/teams$", times=-1)
    assert list(office.records(options={"teams": [guid]})) == [f"general/{ID + 1}"]


def test_channels_for_few_are_left_out_unless_asked_for(busy: Office) -> None:
    busy.rf.membership, busy.vacuum.membership = "private", "shared"
    changes = busy.changes()
    assert sorted(change.unit.split("/")[1] for change in of(Complete, changes)) == [busy.rf.id, busy.vacuum.id]
    assert sorted(ignored.reason[:30] for ignored in of(Ignored, changes)) == [
        "a channel of the kind private,",
        "a channel of the kind shared, ",
    ]
    changes = busy.changes(options={"membership": ["shared"]}, access=["vacuum"])
    assert [upsert.record.access for upsert in of(Upsert, changes)] == [("vacuum",)]


def test_a_channel_that_is_renamed_renames_its_threads(busy: Office) -> None:
    busy.rf.name = "RF & Timing"
    changes = busy.changes()
    assert list(records(changes)) == [f"rf-timing/{ID + 1}"]
    assert [change.unit for change in of(Complete, changes)] == [f"t1/{busy.rf.id}/{ID + 1}"]


# ids


def former(found: dict[str, Record]) -> dict[str, Any]:
    return {key: record.fields.get(FORMER_IDS) for key, record in found.items()}


def test_threads_of_a_renamed_channel_say_what_they_were_called(busy: Office) -> None:
    busy.rf.name = "RF & Timing"
    put(busy.rf, [message(40, "after the renaming")])
    assert former(records(busy.changes())) == {f"rf-timing/{ID + 1}": [f"rf/{ID + 1}"], f"rf-timing/{ID + 40}": None}
    assert of(Upsert, busy.changes()) == []
    busy.rf.name = "RF Group"
    found = former(records(busy.changes()))
    assert found == {
        f"rf-group/{ID + 1}": [f"rf-timing/{ID + 1}", f"rf/{ID + 1}"],
        f"rf-group/{ID + 40}": [f"rf-timing/{ID + 40}"],
    }
    assert former(records(list(busy.source().changes(busy.source().again(busy.cursor))))).items() >= found.items()
    busy.rf.name = "RF"
    busy.changes()
    assert of(Upsert, busy.changes()) == []


def test_a_channel_that_cannot_be_listed_while_it_is_renamed_remembers_its_name(busy: Office) -> None:
    busy.server.fail("status", status=403, path=f"{busy.rf.id}/messages", times=-1)
    busy.rf.name = "RF & Timing"
    assert of(Upsert, busy.changes()) == []
    busy.server.faults.clear()
    assert former(records(busy.changes())) == {f"rf-timing/{ID + 1}": [f"rf/{ID + 1}"]}


def test_an_id_that_another_thread_has_now_is_nobodys_former_one(office: Office) -> None:
    twins(office)
    office.changes()
    office.rf.name = "RF"
    found = former(records(office.changes()))
    # The next in order has the plain id now, which the renamed one had before.
    assert found[f"rf/{ID + 1}"] is None
    assert found[f"rf/{ID + 2}"] == [f"general/{ID + 2}"]
    assert [key[:19] for key in found[f"general/{ID + 1}"]] == ["operations/general~"]
    office.store.found[1].name = "Operators"
    assert former(records(office.changes()))[f"operators/general/{ID + 1}"] == [f"ops/general/{ID + 1}"]


def twins(office: Office) -> dict[str, str]:
    """Threads of one id in channels of one name, live and exported; what they say by record id in both forms."""
    office.vacuum.name = office.rf.name = office.general.name = "General"
    for number, channel in enumerate((office.rf, office.vacuum, office.general), 1):
        put(channel, [message(1, f"from {number}"), message(number + 1, "alone")])
    return {key: text(record).rpartition(": ")[2] for key, record in office.records().items() if key.endswith("01")}


def test_equal_ids_in_channels_of_one_name_do_not_collide(office: Office) -> None:
    found = twins(office)
    (marked,) = (key for key in found if "~" in key)
    assert found == {f"general/{ID + 1}": "from 1", marked: "from 2", f"ops/general/{ID + 1}": "from 3"}
    assert marked.startswith("operations/general~")
    assert len([key for key in office.records() if key.startswith("general/")]) == 4
    office.store.found.reverse()
    assert twins(office) == found
    assert len(of(Upsert, office.changes())) == 6
    office.server.fail("status", status=403, path=f"{office.general.id}/messages", times=-1)
    assert of(Upsert, office.changes()) == []


def test_the_file_form_tells_equal_ids_apart_in_the_same_way(office: Office, tmp_path: Path) -> None:
    office.rf.name = office.general.name = "General"
    for number, channel in ((1, office.rf), (2, office.general)):
        put(channel, [message(1, f"from {number}"), message(number + 1, "alone")])
    folder = tmp_path / "export"
    for team, channel in (("Operations", office.rf), ("Ops", office.general)):
        (folder / team / "General").mkdir(parents=True)
        (folder / team / "General" / "page.json").write_text(json.dumps({"value": list(channel.messages.values())}))
    files = FORMS["files"](Feed(name="chat", source="teams", location=folder), office.context())
    first = list(files.changes(None))
    assert records(first) == office.records()
    assert sorted(records(first)) == [
        f"general/{ID + 1}",
        f"general/{ID + 2}",
        f"general/{ID + 3}",
        f"ops/general/{ID + 1}",
    ]
    assert not of(Upsert, list(files.changes(of(Cursor, first)[0].value)))


# pictures


def shown(content: str) -> str:
    return f'look <img alt="image" src="https://graph.microsoft.com/v1.0/x/hostedContents/{content}/$value">'


def test_pictures_are_fetched_once_and_with_the_token(busy: Office) -> None:
    put(busy.rf, [message(11, shown("aWQ9eA=="), parent=1)])
    busy.rf.hosted[str(ID + 11), "aWQ9eA=="] = PNG
    (record,) = records(busy.changes()).values()
    assert [(found.name, found.media_type, found.part) for found in record.attachments] == [
        ("aWQ9eA==.png", "image/png", 1)
    ]
    assert busy.blobs.get(record.attachments[0].sha256) == PNG
    assert len(busy.server.asked(rf"messages/{ID + 1}/replies/{ID + 11}/hostedContents/.*/\$value")) == 1
    busy.rf.messages[str(ID + 1)]["body"]["content"] = "edited"
    (edited,) = records(busy.changes()).values()
    assert edited.attachments == record.attachments
    assert busy.server.asked("hostedContents") == []
    busy.cursor = busy.source().again(busy.cursor)
    assert len(of(Upsert, busy.changes())) == 3
    assert busy.server.asked("hostedContents") == []


@pytest.mark.parametrize("fault", ["absent", "status", "html", "untyped page", "empty"])
def test_a_picture_that_cannot_be_had_is_remembered_and_fetched_again(busy: Office, fault: str) -> None:
    busy.rf.hosted[str(ID + 1), "pic"] = PNG
    put(busy.rf, [message(1, shown("pic"))])
    if fault == "absent":
        busy.rf.hosted.clear()
    elif fault == "untyped page":
        busy.rf.hosted[str(ID + 1), "pic"] = b"\xef\xbb\xbf\n<!DOCTYPE html><title>Sign in</title>"
    else:
        busy.server.fail(fault, path="hostedContents", times=-1)
    changes = busy.changes()
    (record,) = records(changes).values()
    assert record.attachments == ()
    (failure,) = of(Failure, changes)
    assert (failure.record_id, failure.permanent) == (record.id, False)
    assert failure.item != failure.unit == f"t1/{busy.rf.id}/{ID + 1}"
    busy.server.faults.clear()
    busy.rf.hosted[str(ID + 1), "pic"] = PNG
    (record,) = records(busy.changes()).values()
    assert len(record.attachments) == 1
    assert moved(busy.changes()) == []


def test_pictures_that_hang_hold_nothing_up_for_long(office: Office) -> None:
    put(office.rf, [message(number, shown(f"pic{number}")) for number in range(60)])
    office.server.fail("hang", path="hostedContents", times=-1)
    impatient = Network(timeout_s=0.3, deadline_s=0.3, attempts=1)
    changes = office.changes(network=impatient)
    assert len(of(Upsert, changes)) == len(of(Failure, changes)) == 60
    assert len(office.server.asked("hostedContents")) < 40
    assert sum("was not asked for" in failure.reason for failure in of(Failure, changes)) > 20


def test_channels_that_hang_hold_nothing_up_for_long(office: Office) -> None:
    office.store.found[0].channels = [Channel(f"19:{number}@thread.tacv2", f"Room {number}") for number in range(60)]
    office.server.fail("hang", path="t1/channels/.*/messages", times=-1)
    changes = office.changes(network=Network(timeout_s=0.3, deadline_s=0.3, attempts=1))
    assert len(of(Failure, changes)) == 60
    assert len(office.server.asked("messages")) < 40


def test_replies_that_hang_hold_nothing_up_for_long_and_take_nothing_away(office: Office) -> None:
    for number in range(100, 4100, 100):
        put(office.rf, [message(number, "a thread")])
        put(office.rf, [message(number + each, "a reply", parent=number) for each in range(3)])
    put(office.rf, [message(1, "alone")])
    assert len(of(Upsert, office.changes())) == 41
    office.graph.most_replies = 1
    office.server.fail("hang", path="/replies", times=-1)
    put(office.rf, [message(1, "alone and edited")])
    changes = office.changes(network=Network(timeout_s=0.3, deadline_s=0.3, attempts=1))
    assert len(office.server.asked("/replies")) < 8
    assert len(of(Failure, changes)) == 40
    assert sum("was not asked for" in failure.reason for failure in of(Failure, changes)) > 30
    assert (moved(changes), len(of(Complete, changes))) == (["01"], 1)
    office.server.faults.clear()
    assert [change for change in office.changes() if not isinstance(change, Cursor)] == []


def test_teams_that_hang_hold_nothing_up_for_long(office: Office) -> None:
    office.store.found = [Team(f"t{number}", f"Team {number}", [office.rf]) for number in range(30)]
    office.server.fail("hang", path="/channels", times=-1)
    changes = office.changes(network=Network(timeout_s=0.2, deadline_s=0.2, attempts=1))
    assert len(of(Failure, changes)) == 30
    assert len(office.server.asked("/channels")) < 8


# signing in


def test_an_expired_token_is_renewed_once(busy: Office) -> None:
    put(busy.rf, [message(30, "more")])

    def expire(path: str, answer: dict[str, Any]) -> None:
        if in_channel(busy.rf, path) and busy.graph.tokens == {TOKEN}:
            busy.graph.tokens = {"another-token"}
            (busy.home / "token").write_text("another-token")

    busy.twist = expire
    changes = busy.changes()
    assert (moved(changes), of(Failure, changes)) == (["30"], [])
    busy.graph.tokens = {"a-third"}
    with pytest.raises(FeedError, match=r"status 401.*expired.*`credentials`") as caught:
        busy.changes()
    assert "another-token" not in str(caught.value)
    assert len(busy.server.requests) == 1


@pytest.fixture
def trusted(office: Office, tmp_path: Path) -> Iterator[tuple[Office, Network]]:
    """The office behind TLS, which signing in demands."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    (tmp_path / "secret").write_text("s3cret-of-the-app")
    office.graph.clients["app"] = "s3cret-of-the-app"
    office.graph.tokens = set()
    put(office.rf, [message(1, "thread 1")])
    with serving(office, context) as office.server:
        yield office, Network(timeout_s=2, deadline_s=8, attempts=3, backoff_s=0.001, ca_bundle=bundle)


def secret_feed(office: Office, **options: Any) -> dict[str, Any]:
    made = {"tenant": "facility", "client_id": "app", "authority": office.server.url, **options}
    return {"credentials": {"password": {"file": str(office.home / "secret")}}, "options": made}


def test_signing_in_with_a_client_secret(trusted: tuple[Office, Network]) -> None:
    office, network = trusted
    office.server.fail("status", status=503, path="token")

    def expire(path: str, answer: dict[str, Any]) -> None:
        if "channels" in path and office.graph.signed_in == 1:
            assert office.graph.tokens is not None
            office.graph.tokens.clear()

    office.twist = expire
    assert len(office.records(network=network, **secret_feed(office))) == 1
    assert office.graph.signed_in == 2
    assert len(office.server.asked("POST .*token")) == 3


def test_a_sign_in_that_fails_says_why_and_keeps_the_secret(trusted: tuple[Office, Network]) -> None:
    office, network = trusted
    office.graph.clients["app"] = "another"
    with pytest.raises(FeedError, match=r"sign-in as app fails .*AADSTS7000215.*password") as caught:
        office.records(network=network, **secret_feed(office))
    assert "s3cret" not in str(caught.value)
    office.server.fail("reset", path="token", times=-1)
    with pytest.raises(FeedError, match=r"sign-in: .*connection broke"):
        office.records(network=network, **secret_feed(office))
    office.server.faults.clear()
    with pytest.raises(FeedError, match=r"options\.tenant missing"):
        office.records(network=network, **secret_feed(office, tenant=""))


def test_what_cannot_work_is_said_at_once(office: Office) -> None:
    for more, said in [
        ({"url": ""}, "`url` is missing"),
        ({"url": "http://graph.example"}, "unencrypted"),
        ({"options": {"team": ["x"]}}, r"options\.team: "),
        ({"options": {"membership": ["secret"]}}, r"options\.membership\.0"),
        ({"credentials": {"token": {"env": "NOT_SET_ANYWHERE"}}}, "NOT_SET_ANYWHERE is not set"),
        ({"credentials": {}}, r"no way to sign in: .*credentials\.password missing"),
    ]:
        with pytest.raises(FeedError, match=said):
            office.source(**more).check()
    assert office.server.requests == []
