"""The structural extractor: what fields and links state becomes nodes and edges, and nothing else does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aps_rag_pipeline.knowledge.entities import (
    ENTITY_TYPES,
    RECORD_TYPES,
    RELATIONS,
    NodeMention,
    edge_id,
    entity,
    record_node,
    settle,
)
from aps_rag_pipeline.knowledge.structure import (
    ENTITY_FIELDS,
    EXTRACTOR,
    LINK_RELATIONS,
    REFERENCE_FIELDS,
    SAME_ROW,
    STATED,
    extract,
    record_type,
)
from aps_rag_pipeline.records import KEY_PREFIX, SOURCES, Link, Part, Record

THERE = {
    ("work_request", "WRQ:20417"): "WRQ:20417",
    ("work_request", "20417"): "WRQ:20417",
    ("log_entry", "BELY:12345"): "BELY:12345",
    ("downtime", "DOWN:2025-0412"): "DOWN:2025-0412",
    ("downtime", "2025-0412"): "DOWN:2025-0412",
    ("document", "ICMS:APS_1273342"): "ICMS:APS_1273342",
    ("document", "APS_1273342"): "ICMS:APS_1273342",
    ("process_variable", "S-DCCT:CurrentM"): "PV:S-DCCT:CurrentM",
    ("wiki", "rf/Klystrons"): "WIKI:rf/Klystrons",
    ("reply_to", "12300"): "BELY:12300",
    ("supersedes", "APS_1000001"): "ICMS:APS_1000001",
    ("parent", "rf/start"): "WIKI:rf/start",
    ("file", "ops-tools/lib/x.tcl"): "CODE:ops-tools/lib/x.tcl",
    ("url", "https://wiki.example/rf/Klystrons"): "WIKI:rf/Klystrons",
}


def resolve(kind: str, target: str) -> str | None:
    return THERE.get((kind, target))


def record(source: str, id: str = "1", **values: object) -> Record:
    return Record(source=source, feed=source, id=id, title=str(values.pop("title", "A title")), **values)


def said(found: Record, key: str | None = None) -> set[tuple[str, str, str]]:
    key = key or f"{KEY_PREFIX[found.source]}:{found.id}"
    _, edges = extract(found, key, [f"{key}#0", f"{key}#1"], resolve)
    return {(edge.src, edge.relation, edge.dst) for edge in edges}


def test_the_types_are_those_of_the_design() -> None:
    assert len(ENTITY_TYPES) == 14
    assert len(RELATIONS) == 14
    assert set(RECORD_TYPES) == set(SOURCES) == set(ENTITY_FIELDS)
    used = {rule.relation for rules in ENTITY_FIELDS.values() for rule in rules}
    used |= {rule.relation for rule in REFERENCE_FIELDS} | set(LINK_RELATIONS.values()) | {"CALLS"}
    assert used == set(RELATIONS)


def test_a_downtime_row() -> None:
    row = record(
        "downtime",
        "2025-0412",
        author="Dana Ibarra",
        fields={
            "system": "RF",
            "component": "RF1:KLY2",
            "location": "RF station 1",
            "cause": "Thyratron  misfire",
            "reporter": "Dana Ibarra",
            "beam_lost": True,
            "duration_s": 3600.0,
            "log_entries": ["12345"],
        },
        links=(
            Link("log_entry", "BELY:12345"),
            Link("work_request", "WRQ:20417"),
            Link("work_request", "WRQ:99999"),
            Link("process_variable", "S-DCCT:CurrentM"),
            Link("process_variable", "SRF:RF1:KLY2:OutputArcBI.VAL"),
        ),
    )
    key = "DOWN:2025-0412"
    assert said(row) == {
        (key, "AFFECTS", "System:rf"),
        (key, "AFFECTS", "Component:rf1:kly2"),
        (key, "LOCATED_IN", "Location:rf station 1"),
        (key, "CAUSED_BY", "Fault:thyratron misfire"),
        (key, "REPORTED_BY", "Person:dana ibarra"),
        ("Component:rf1:kly2", "PART_OF", "System:rf"),
        ("Component:rf1:kly2", "LOCATED_IN", "Location:rf station 1"),
        (key, "REFERENCES", "BELY:12345"),
        (key, "REFERENCES", "WRQ:20417"),
        (key, "MENTIONS", "PV:S-DCCT:CurrentM"),
        (key, "MENTIONS", "ProcessVariable:srf:rf1:kly2:outputarcbi"),
    }


def test_edges_carry_their_evidence() -> None:
    row = record("work_requests", "20417", fields={"component": "GV3", "system": "Vacuum"})
    nodes, edges = extract(row, "WRQ:20417", ["WRQ:20417#0", "WRQ:20417#1"], resolve)
    assert {edge.passage_id for edge in edges} == {"WRQ:20417#0"}
    assert {edge.extractor for edge in edges} == {EXTRACTOR}
    sure = {(edge.src, edge.dst): edge.confidence for edge in edges}
    assert sure == {
        ("WRQ:20417", "Component:gv3"): STATED,
        ("WRQ:20417", "System:vacuum"): STATED,
        ("Component:gv3", "System:vacuum"): SAME_ROW,
    }
    assert nodes[0] == NodeMention("WRQ:20417", "WorkRequest", "WRQ:20417", "WRQ:20417")
    assert extract(row, "WRQ:20417", [], resolve)[1][0].passage_id is None


def test_a_work_request_with_its_people() -> None:
    row = record("work_requests", author="Beth Novak", fields={"requester": "Beth Novak", "assignee": "J. Keller"})
    assert said(row) == {("WRQ:1", "REPORTED_BY", "Person:beth novak"), ("WRQ:1", "MENTIONS", "Person:j. keller")}


def test_a_component_of_several_systems_is_part_of_none_in_particular() -> None:
    row = record("work_requests", fields={"component": "Pump 3", "system": ["Vacuum", "Water"]})
    assert said(row) == {
        ("WRQ:1", "AFFECTS", "Component:pump 3"),
        ("WRQ:1", "AFFECTS", "System:vacuum"),
        ("WRQ:1", "AFFECTS", "System:water"),
    }


def test_fields_that_name_what_the_other_record_is() -> None:
    row = record(
        "downtime", fields={"resolved_by": "WRQ:20417", "procedure": "APS_1273342", "caused_by": "power glitch"}
    )
    assert said(row) == {("DOWN:1", "RESOLVED_BY", "WRQ:20417"), ("DOWN:1", "FOLLOWS_PROCEDURE", "ICMS:APS_1273342")}
    entry = record("bely", fields={"downtime": "2025-0412"})
    assert said(entry) == {("BELY:1", "DURING", "DOWN:2025-0412")}


def test_links_of_every_kind() -> None:
    entry = record(
        "bely",
        fields={"system": ["RF", "Linac"], "logbook": ["Operations"], "document": "Owl shift"},
        author="tanakah",
        links=(
            Link("reply_to", "12300"),
            Link("document", "ICMS:APS_1273342", "Procedure"),
            Link("work_request", "WRQ:20417", "fixed by"),
            Link("downtime", "DOWN:2025-0412"),
            Link("url", "https://wiki.example/rf/Klystrons", "see the page"),
            Link("url", "https://elsewhere.example/"),
        ),
    )
    assert said(entry) == {
        ("BELY:1", "MENTIONS", "System:rf"),
        ("BELY:1", "MENTIONS", "System:linac"),
        ("BELY:1", "REPORTED_BY", "Person:tanakah"),
        ("BELY:1", "REPLIES_TO", "BELY:12300"),
        ("BELY:1", "FOLLOWS_PROCEDURE", "ICMS:APS_1273342"),
        ("BELY:1", "RESOLVED_BY", "WRQ:20417"),
        ("BELY:1", "REFERENCES", "DOWN:2025-0412"),
        ("BELY:1", "REFERENCES", "WIKI:rf/Klystrons"),
    }


def test_code_calls_code_and_refers_to_other_files() -> None:
    module = record("code", "ops-tools/a.tcl", links=(Link("file", "ops-tools/lib/x.tcl"),))
    assert said(module) == {("CODE:ops-tools/a.tcl", "CALLS", "CODE:ops-tools/lib/x.tcl")}
    page = record("wiki", "rf/x", links=(Link("file", "ops-tools/lib/x.tcl"), Link("parent", "rf/start")))
    assert said(page) == {
        ("WIKI:rf/x", "REFERENCES", "CODE:ops-tools/lib/x.tcl"),
        ("WIKI:rf/x", "PART_OF", "WIKI:rf/start"),
    }


def test_a_process_variable_and_its_groups() -> None:
    pv = record(
        "epics",
        "S1A:Q1:CurrentAI",
        fields={"groups": ["SR magnets", "sector 1"], "device": "S1A:Q1", "units": "A"},
        links=(Link("process_variable", "S-DCCT:CurrentM", "INP"), Link("process_variable", "$(P):X")),
    )
    key = "PV:S1A:Q1:CurrentAI"
    assert said(pv) == {
        (key, "PART_OF", "System:sr magnets"),
        (key, "PART_OF", "System:sector 1"),
        (key, "MONITORS", "Component:s1a:q1"),
        (key, "REFERENCES", "PV:S-DCCT:CurrentM"),
    }


def test_a_document_that_says_it_is_a_procedure() -> None:
    assert record_type(record("icms", title="Klystron conditioning procedure")) == "Procedure"
    assert record_type(record("icms", fields={"type": "Checklist"})) == "Procedure"
    assert record_type(record("wiki", fields={"tags": ["rf", "procedures"]})) == "Procedure"
    assert record_type(record("icms", title="Procedural notes on klystrons")) == "Document"
    assert record_type(record("bely", title="followed the procedure")) == "LogEntry"
    superseding = record("icms", "APS_1", title="RF procedure", links=(Link("supersedes", "APS_1000001"),))
    nodes, edges = extract(superseding, "ICMS:APS_1", [], resolve)
    assert [node.type for node in nodes] == ["Procedure", "Document"]
    assert [(edge.relation, edge.dst) for edge in edges] == [("SUPERSEDES", "ICMS:APS_1000001")]


def test_manuals_name_their_tool() -> None:
    manual = record("sdds_docs", "manuals/SDDSplot.tex", title="sddsplot")
    assert said(manual) == {("SDDS:manuals/SDDSplot.tex", "MENTIONS", "Tool:sddsplot")}
    assert said(record("sdds_docs", "manuals/x.tex", fields={"tool": "sddsfft"})) == {
        ("SDDS:manuals/x.tex", "MENTIONS", "Tool:sddsfft")
    }
    assert said(record("sdds_docs", "manuals/guide.tex", title="User's Guide")) == set()


@pytest.mark.parametrize("value", ["", " - ", "N/A", "unknown", "???", "x" * 200, True, 3.5, []])
def test_what_is_no_name_gives_no_node(value: object) -> None:
    row = record("downtime", fields={"system": value, "component": value, "cause": value})
    nodes, edges = extract(row, "DOWN:1", [], resolve)
    assert (len(nodes), edges) == (1, [])


def test_a_number_may_name_a_place() -> None:
    assert said(record("downtime", fields={"location": 35})) == {("DOWN:1", "LOCATED_IN", "Location:35")}


@pytest.mark.parametrize(
    ("authors", "people"),
    [
        ("A. Smith, B. Jones", {"Person:a. smith", "Person:b. jones"}),
        ("Smith, John", {"Person:smith, john"}),
        ("Alice Smith; Bob Jones", {"Person:alice smith", "Person:bob jones"}),
        (["Smith, J.", "Jones, B."], {"Person:smith, j", "Person:jones, b"}),
        ("Smith, J, Jones, B", set()),
        ("M. Borland, ANL/APS", {"Person:m. borland"}),
        ("de la Cruz, Maria", {"Person:de la cruz, maria"}),
        ("A. Smith, B. Jones, C. van Dyk", {"Person:a. smith", "Person:b. jones", "Person:c. van dyk"}),
    ],
)
def test_lists_of_people(authors: str | list[str], people: set[str]) -> None:
    assert {dst for _, _, dst in said(record("icms", fields={"authors": authors}))} == people


def test_a_link_to_itself_is_no_edge() -> None:
    entry = record("bely", "12345", links=(Link("log_entry", "BELY:12345"),))
    assert said(entry) == set()


def test_a_title_never_names_a_node() -> None:
    secret = record("icms", "APS_9", title="Secret reorganisation", author="", access=("hr",))
    nodes, _ = extract(secret, "ICMS:APS_9", [], resolve)
    assert [node.name for node in nodes] == ["ICMS:APS_9"]


def test_spellings_of_a_name_are_one_entity() -> None:
    ids = {node.node_id for text in ("RF", " rf ", "Rf.", "\u2009RF\n") if (node := entity("System", text))}
    assert ids == {"System:rf"}
    assert entity("System", "klystron_gallery") == NodeMention(
        "System:klystron gallery", "System", "klystron_gallery", None
    )


def test_several_mentions_settle_on_one_node_in_any_order() -> None:
    own, other = record_node("ICMS:1", "Procedure"), record_node("ICMS:1")
    assert settle([own, other]) == settle([other, own]) == own
    spelled = [NodeMention("System:rf", "System", name) for name in ("rf", "RF", "Rf")]
    assert settle(spelled) == settle(reversed(spelled)) == NodeMention("System:rf", "System", "RF")
    with pytest.raises(ValueError, match="at least one"):
        settle([])


def test_an_edge_id_outlives_the_extractor_version_only() -> None:
    first = edge_id("A", "A", "MENTIONS", "B", None, "structure:1")
    assert first == edge_id("A", "A", "MENTIONS", "B", None, "structure:2")
    others = [
        edge_id("B", "A", "MENTIONS", "B", None, "structure:1"),
        edge_id("A", "A", "AFFECTS", "B", None, "structure:1"),
        edge_id("A", "B", "MENTIONS", "A", None, "structure:1"),
        edge_id("A", "A", "MENTIONS", "B", "A#0", "structure:1"),
        edge_id("A", "A", "MENTIONS", "B", None, "rules:1"),
    ]
    assert len({first, *others}) == 6


_words = st.text(max_size=40)
_values = st.one_of(_words, st.integers(), st.floats(), st.booleans(), st.lists(_words, max_size=3))
_fields = st.dictionaries(
    st.sampled_from([rule.field for rules in ENTITY_FIELDS.values() for rule in rules] + ["procedure", "downtime"]),
    _values,
    max_size=6,
)
_links = st.lists(
    st.builds(Link, st.sampled_from(sorted(LINK_RELATIONS)), st.one_of(_words, st.sampled_from(sorted(
        target for _, target in THERE)))), max_size=5,
)  # fmt: skip


@given(st.sampled_from(SOURCES), _words, _fields, _links)
def test_any_record_gives_a_closed_graph_of_what_it_states(
    source: str, author: str, fields: dict[str, object], links: list[Link]
) -> None:
    found = record(
        source, author=author, fields=fields, links=tuple(links), created_at=datetime(2025, 1, 1, tzinfo=UTC),
        parts=(Part("prose", "caused by the klystron in sector 4, see WRQ:20417"),),
    )  # fmt: skip
    key = f"{KEY_PREFIX[source]}:1"
    nodes, edges = extract(found, key, [f"{key}#0"], resolve)
    assert (nodes, edges) == extract(found, key, [f"{key}#0"], resolve)
    ids = [node.node_id for node in nodes]
    assert ids[0] == key
    assert len(ids) == len(set(ids))
    assert len({edge.edge_id for edge in edges}) == len(edges)
    for edge in edges:
        assert {edge.src, edge.dst} <= set(ids)
        assert edge.src != edge.dst
        assert edge.relation in RELATIONS
    stated = " ".join(
        "".join(str(value).split())
        for value in (author, *[v if not isinstance(v, list) else "".join(v) for v in fields.values()],
                      *[link.target for link in links])
    )  # fmt: skip
    for node in nodes[1:]:
        assert node.type in ENTITY_TYPES
        if node.key is None:
            import unicodedata

            plain = "".join(unicodedata.normalize("NFKC", stated).split())
            assert "".join(node.name.split()) in plain
        else:
            assert node.key in THERE.values()
