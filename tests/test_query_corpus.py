"""A corpus over a small hand-written release: what is found, what is answered, what is declined, what stays hidden."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aps_rag_pipeline.stores import releases
from aps_rag_pipeline.stores.home import Home
from query import Corpus
from query.lookup import AmbiguousKeyError, RecordNotFoundError
from query.retrieval import SOURCE_CAP, Found, capped
from tests.released import Written, write_release

SECRET = "XJ77:SECRET"
MARCH, APRIL = datetime(2025, 3, 14, 12, tzinfo=UTC), datetime(2025, 4, 20, 12, tzinfo=UTC)

RECORDS = [
    Written(
        "bely",
        "12345",
        "RF2 trip",
        (
            "RF2:KLY1 tripped at 03:12 on an arc. Cathode voltage was 82.4 kV at the time.\n"
            "The output window was found cracked. It was replaced by 05:40 and beam came back.",
        ),
        created_at=MARCH,
        url="https://log.example/12345",
    ),
    Written("bely", "12346", "Quiet shift", ("Nothing to report. All stations were stable.",), created_at=APRIL),
    Written("bely", "12347", "Quiet shift", ("Nothing to report. All stations were stable.",), created_at=APRIL),
    Written("epics", "S-DCCT:CurrentM", "S-DCCT:CurrentM", ("Storage ring current, unit mA, group dcct.",)),
    *(
        Written("epics", f"S{n}A:Q{n}:CurrentAI", f"S{n}A:Q{n}:CurrentAI", ("Quadrupole output current, unit A.",))
        for n in range(1, 61)
    ),
    Written(
        "work_requests",
        "20417",
        "Replace output window",
        ("Replace the cracked output window of RF2:KLY1. See BELY:12345 and S-DCCT:CurrentM.",),
        fields=json.dumps({"status": "Completed", "related": ["BELY:12345"]}),
        links=json.dumps([{"kind": "log_entry", "target": "BELY:12345", "text": "BELY:12345"}]),
    ),
    Written(
        "wiki",
        "rf/Klystrons",
        "Klystron start-up",
        (
            ("prose", "Water", "Water", "Check that the collector water flow is above 290 gpm before anything else."),
            ("table", "Limits", "Limits", "| Signal | Limit |\n| --- | --- |\n| Filament current | 24.5 A |"),
        ),
        feed="aps_wiki",
        several=True,
    ),
    Written("wiki", "rf/Klystrons", "Old page", ("An abandoned page.",), feed="old_wiki", several=True),
    Written(
        "teams",
        "rf/1",
        f"{SECRET} plan",
        (f"The covert zebra experiment on {SECRET} uses RF2:KLY1 and 777.25 kV. The password is hunter2.",),
        access=("rf",),
    ),
    Written(
        "downtime", "2025-0412", "Zebra outage", ("The zebra interlock opened for 1.5 hours.",), access=("rf", "ops")
    ),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    # Vectors of the hashing model say little of meaning, so answers here rest on words alone.
    return write_release(tmp_path_factory.mktemp("released"), RECORDS, calibrations={"answer.sufficient": 0.4})


@pytest.fixture(scope="module")
def owner(home: Home) -> Iterator[Corpus]:
    with Corpus.open(home, groups=None) as corpus:
        yield corpus


@pytest.fixture(scope="module")
def public(home: Home) -> Iterator[Corpus]:
    with Corpus.open(home, groups=set()) as corpus:
        yield corpus


def first(corpus: Corpus, text: str) -> str:
    return corpus.search(text).hits[0].key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("WRQ:20417", "WRQ:20417"),
        ("wrq 20417", "WRQ:20417"),
        ("work request #20417", "WRQ:20417"),
        ("20417", "WRQ:20417"),
        ("BELY:12345", "BELY:12345"),
        ("log entry 12345", "BELY:12345"),
        ("S-DCCT:CurrentM", "PV:S-DCCT:CurrentM"),
        ("s dcct currentm", "PV:S-DCCT:CurrentM"),
        ("S33A Q33 CurrentAI", "PV:S33A:Q33:CurrentAI"),
        ("s33a:q33:currentai.VAL", "PV:S33A:Q33:CurrentAI"),
        ("wiki:old_wiki/rf/klystrons", "WIKI:old_wiki/rf/Klystrons"),
        ("DOWN:2025-0412", "DOWN:2025-0412"),
    ],
)
def test_a_bare_identifier_ranks_its_own_record_first(owner: Corpus, text: str, key: str) -> None:
    assert first(owner, text) == key
    for profile in ("dense-heavy", "even"):
        assert owner.search(text, profile=profile).hits[0].key == key


def test_every_pv_is_found_by_name_among_its_likes(owner: Corpus) -> None:
    for n in range(1, 61):
        assert first(owner, f"S{n}A:Q{n}:CurrentAI") == f"PV:S{n}A:Q{n}:CurrentAI"


def test_hits_tell_their_ranks_in_each_channel(owner: Corpus) -> None:
    hit = owner.search("S-DCCT:CurrentM").hits[0]
    assert hit.channels["exact"] == 1
    assert hit.channels["sparse"] >= 1
    assert hit.source == hit.feed == "epics"
    mention = next(h for h in owner.search("S-DCCT:CurrentM").hits if h.key == "WRQ:20417")
    assert mention.channels["exact"] == 2


def test_one_channel_alone_can_be_asked(owner: Corpus) -> None:
    assert all(set(hit.channels) == {"dense"} for hit in owner.search("cracked window", mode="dense").hits)
    sparse = owner.search("cracked window", mode="sparse").hits
    assert sparse
    assert all(set(hit.channels) == {"sparse"} for hit in sparse)


def test_filters_by_source_feed_and_time(owner: Corpus) -> None:
    assert {h.source for h in owner.search("klystron window", sources=["work_requests"]).hits} == {"work_requests"}
    assert {h.feed for h in owner.search("page klystron", feeds=["old_wiki"]).hits} == {"old_wiki"}
    assert {h.key for h in owner.search("shift", since="2025-04-01").hits} == {"BELY:12346", "BELY:12347"}
    assert "BELY:12346" not in {h.key for h in owner.search("quiet shift", k=99, until="2025-04-19").hits}
    assert "BELY:12346" in {h.key for h in owner.search("quiet shift", k=99, until="2025-04-20").hits}
    assert owner.search("anything", since="2030-01-01").hits == []


def test_a_time_in_the_question_limits_the_search_only_if_something_remains(owner: Corpus) -> None:
    april = owner.search("stations stable in April 2025", k=99)
    assert april.understanding.window_applied
    assert {h.key for h in april.hits} == {"BELY:12346", "BELY:12347"}
    later = owner.search("cracked output window in May 2025")
    assert not later.understanding.window_applied
    assert later.hits[0].key in {"BELY:12345", "WRQ:20417"}


def test_what_cannot_be_meant_is_refused(owner: Corpus) -> None:
    with pytest.raises(ValueError, match="no such source: emails"):
        owner.search("x", sources=["emails"])
    with pytest.raises(ValueError, match="no such mode"):
        owner.search("x", mode="psychic")
    with pytest.raises(ValueError, match="write it as"):
        owner.search("x", since="tomorrow-ish")
    with pytest.raises(TypeError, match="collection of labels"):
        Corpus.open(Path("/nowhere"), groups="ops")


@pytest.mark.parametrize(
    "text", ["", "   ", "?", "\x00\x1b[31m", 'AND OR NOT ( [ " : ^~*', "a" * 5000, "kly " * 3000, "'; drop"]
)
def test_hostile_questions_cost_nothing(owner: Corpus, text: str) -> None:
    owner.search(text)
    answer = owner.ask(text)
    assert not answer.answered or answer.sentences


def test_an_answer_cites_what_it_says(owner: Corpus) -> None:
    answer = owner.ask("Why did RF2:KLY1 trip, what was found cracked?")
    assert answer.answered
    assert "cracked" in answer.text
    assert "[BELY:12345]" in answer.text or "[WRQ:20417]" in answer.text
    held = {key for item in answer.evidence for key in (item.key, *item.also)}
    for sentence in answer.sentences:
        assert set(sentence.keys) <= held
        assert any(sentence.text in " ".join(item.text.split()) for item in answer.evidence)


def test_a_row_of_a_table_answers_with_its_heading(owner: Corpus) -> None:
    answer = owner.ask("What is the limit of the klystron filament current signal?")
    assert "Signal: Filament current; Limit: 24.5 A [WIKI:aps_wiki/rf/Klystrons]" in answer.text


def test_twins_are_one_passage_that_names_both(owner: Corpus) -> None:
    answer = owner.ask("were all stations stable, nothing to report on the quiet shift?")
    item = next(item for item in answer.evidence if item.key in ("BELY:12346", "BELY:12347"))
    assert {item.key, *item.also} == {"BELY:12346", "BELY:12347"}
    assert "[BELY:12346]" in answer.text
    assert "[BELY:12347]" in answer.text


@pytest.mark.parametrize("text", ["What was done under WRQ:99999?", "WRQ 99999", "why did S99B:Q9:CurrentAI drop?"])
def test_an_identifier_that_is_nowhere_has_no_answer(owner: Corpus, text: str) -> None:
    answer = owner.ask(text)
    assert not answer.answered
    assert answer.sentences == []
    assert answer.understanding.unknown[0] in answer.text.lower()
    assert answer.nearest
    assert answer.searched.records == len(RECORDS)


def test_a_question_about_nothing_here_is_declined_with_the_nearest_records(owner: Corpus) -> None:
    answer = owner.ask("Which restaurant near campus serves vegetarian breakfast?")
    assert not answer.answered
    assert answer.text.startswith("Not found")
    assert answer.reason
    assert answer.evidence == []
    assert answer.nearest


def test_records_by_key_and_id(owner: Corpus) -> None:
    record = owner.record("wrq:20417")
    assert record.key == "WRQ:20417"
    assert record.fields == {"status": "Completed", "related": ["BELY:12345"]}
    assert [(link.kind, link.target) for link in record.links] == [("log_entry", "BELY:12345")]
    assert [passage.text for passage in record.passages] == [RECORDS[64].passages[0]]
    assert owner.record("20417").key == "WRQ:20417"
    assert owner.record("s-dcct:currentm").key == "PV:S-DCCT:CurrentM"
    assert owner.record("PV:epics/S-DCCT:CurrentM").key == "PV:S-DCCT:CurrentM"
    assert owner.record("wiki:aps_wiki/RF/klystrons").title == "Klystron start-up"
    assert [p.locator for p in owner.record("WIKI:aps_wiki/rf/Klystrons").passages] == ["Water", "Limits"]
    with pytest.raises(AmbiguousKeyError, match="aps_wiki/rf/Klystrons, WIKI:old_wiki"):
        owner.record("WIKI:rf/Klystrons")
    for missing in ("WRQ:1", "nothing", "", "' or 1=1 --"):
        with pytest.raises(RecordNotFoundError):
            owner.record(missing)


def test_status_counts(owner: Corpus, home: Home) -> None:
    status = owner.status()
    assert status.records == len(RECORDS)
    assert status.passages == status.chunks == len(RECORDS) + 1
    assert {(f.source, f.feed): f.records for f in status.feeds}["wiki", "old_wiki"] == 1
    assert json.loads(json.dumps(status.to_dict()))["release"] == 1


PROBES = [
    SECRET,
    "xj77 secret",
    "XJ77 SECRET",
    "TEAMS:rf/1",
    "teams rf/1",
    "what does the covert zebra experiment use?",
    "password hunter2",
    "777.25",
    "RF2:KLY1",
    "downtime 2025-0412",
    "zebra interlock",
]


@pytest.mark.parametrize("text", PROBES)
def test_a_reader_without_the_group_sees_nothing_of_it(public: Corpus, text: str) -> None:
    found, answer = public.search(text, k=200), public.ask(text)
    asked = text.lower()
    for told in (found.to_dict(), answer.to_dict()):
        # What the reader typed comes back; nothing else of the hidden records may.
        told["understanding"].pop("text")
        told.pop("question", None)
        shown = json.dumps(told).lower()
        for hidden in ("zebra", "covert", "hunter2", "777.25", "xj77", "teams:rf/1", "2025-0412"):
            assert hidden not in shown or hidden in asked.replace(" ", ":") or hidden in asked
    assert not {"teams", "downtime"} & {hit.source for hit in (*found.hits, *answer.nearest)}
    assert {"teams", "downtime"}.isdisjoint(answer.searched.sources)
    assert answer.searched.records == len(RECORDS) - 2
    assert not {"xj77:secret", "teams:rf/1", "rf/1", "down:2025-0412"} & set(found.understanding.identifiers)


def test_a_hidden_name_is_answered_like_one_that_never_was(public: Corpus) -> None:
    hidden, never = public.ask(f"what is {SECRET}?"), public.ask("what is XQ99:NOTHING?")
    assert hidden.text.replace("xj77:secret", "") == never.text.replace("xq99:nothing", "")
    for name in ("TEAMS:rf/1", "DOWN:2025-0412", "rf/1"):
        with pytest.raises(RecordNotFoundError) as caught:
            public.record(name)
        assert str(caught.value) == f"no record {name!r}"


def test_counts_are_those_of_the_reader(public: Corpus) -> None:
    status = public.status()
    assert status.records == len(RECORDS) - 2
    assert not {"teams", "downtime"} & {feed.source for feed in status.feeds}


@pytest.mark.parametrize(
    ("groups", "sources"), [({"rf"}, {"teams", "downtime"}), ({"ops"}, {"downtime"}), ({"OPS"}, set())]
)
def test_any_label_admits_and_letter_case_counts(home: Home, groups: set[str], sources: set[str]) -> None:
    with Corpus.open(home, groups) as corpus:
        assert {h.source for h in corpus.search("zebra", k=99).hits} & {"teams", "downtime"} == sources


def test_a_source_cannot_flood_a_channel() -> None:
    flood = [Found(f"PV:{n}#0.0", "epics", 1 - n / 1000) for n in range(200)]
    rest = [Found(f"BELY:{n}#0.0", "bely", 0.5 - n / 1000) for n in range(70)]

    def fetch(filters, limit):
        there = [hit for hit in [*flood, *rest] if hit.source not in filters.without]
        return sorted(there, key=lambda hit: -hit.score)[:limit]

    from query.filters import Filters

    found = capped(fetch, Filters())
    counts = {source: sum(hit.source == source for hit in found) for source in ("epics", "bely")}
    assert counts == {"epics": 60, "bely": 40}
    assert [hit.source for hit in found[:SOURCE_CAP]] == ["epics"] * SOURCE_CAP
    alone = capped(fetch, Filters(sources=("epics",)))
    assert len(alone) == 100
    assert {hit.source for hit in alone} == {"epics"}


def test_a_place_finds_what_is_named_after_it_for_those_who_may_see_why(tmp_path: Path) -> None:
    entries = [
        Written("bely", str(n), f"Entry {n}", (f"S{n}A:Q1 went hot, fan swapped.",), feed="bely") for n in range(1, 60)
    ]
    located = tuple((f"s{n}a:q1", f"sector {n}", ("rf",)) for n in range(1, 60))
    home = write_release(tmp_path, entries, located=located)
    question = "what was swapped in sector 47 when it went hot?"
    with Corpus.open(home, {"rf"}) as corpus:
        hit = corpus.search(question).hits[0]
        assert (hit.key, hit.channels["focus"]) == ("BELY:47", 1)
    with Corpus.open(home, set()) as corpus:
        assert all("focus" not in hit.channels for hit in corpus.search(question, k=99).hits)


def test_refresh_serves_the_next_release_and_lets_the_old_one_go(tmp_path: Path) -> None:
    home = write_release(tmp_path, [Written("bely", "1", "First", ("The first text about beams.",))])
    with Corpus.open(home, None) as corpus:
        assert corpus.search("beams").release == 1
        write_release(tmp_path, [Written("bely", "2", "Second", ("The second text about beams.",))], number=2)
        assert corpus.status().release == 1
        assert corpus.refresh() == 2
        assert [hit.key for hit in corpus.search("beams").hits] == ["BELY:2"]
        assert not releases.leased(releases.folder_of(home, 1))
        assert releases.leased(releases.folder_of(home, 2))
    assert not releases.leased(releases.folder_of(home, 2))


def test_an_empty_home_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(releases.NoReleaseError, match="aps-rag sync"):
        Corpus.open(tmp_path, None)


def test_a_read_only_release_is_read_from_a_copy(tmp_path: Path) -> None:
    home = write_release(tmp_path, [Written("bely", "1", "Beams", ("A text about beams.",))])
    with Corpus.open(home, None) as corpus:
        index = corpus._snapshot.release.tantivy
        index.chmod(0o500)
        try:
            assert [hit.key for hit in corpus.search("beams").hits] == ["BELY:1"]
        finally:
            index.chmod(0o700)


def test_opening_and_importing_load_nothing_heavy(home: Home) -> None:
    code = (
        "import sys; from query import Corpus; corpus = Corpus.open(sys.argv[1], None); "
        "heavy = {'torch', 'dagster', 'lancedb', 'sentence_transformers', 'openvino', 'rich'} & set(sys.modules); "
        "assert not heavy, heavy; corpus.ask('RF2:KLY1 window'); "
        "heavy = {'torch', 'dagster', 'sentence_transformers', 'rich'} & set(sys.modules); assert not heavy, heavy"
    )
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code, str(home.root)], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
