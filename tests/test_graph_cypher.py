"""The read-only check: what reads passes, and no disguise gets a write through."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aps_rag_pipeline.stores.cypher import OPENERS, REFUSED, WriteRefused, refuse_writes

READING = [
    "MATCH (n) RETURN n",
    "match (n:Fault) where n.name contains 'DELETE everything' return n limit 5;",
    "MATCH (n:`CREATE`) RETURN n.`set`, n.delete, n.createdAt",
    "MATCH (n:Delete)-[:SET]->(m) RETURN n.merge AS merged",
    "MATCH (settings {created: 1}) RETURN settings.load",
    'RETURN "it\'s" AS a, \'say "CREATE"\' AS b',
    "MATCH (n) // CREATE (x)\nRETURN n /* MERGE\n(y) */ LIMIT 1",
    "MATCH (n)-[r*1..3]->(m) RETURN size(r), 1.5, 2e3, .5, 0x1F, n.a[0..2]",
    "MATCH (n) WHERE n.name =~ 'S1.*\\\\d' RETURN n",
    "MATCH (n) CALL { WITH n MATCH (n)--(m) RETURN count(m) AS c } RETURN n, c",
    "MATCH (n) CALL (n) { MATCH (n)--(m) RETURN m } RETURN m",
    "CALL db.labels() YIELD label RETURN label",
    "CALL db.schema.visualization()",
    "UNWIND [1, 2] AS x WITH x WHERE x > 1 RETURN x UNION RETURN 3 AS x",
    "OPTIONAL MATCH (n) RETURN date.truncate('day', datetime()), text.indexOf('ab', 'b')",
    "EXPLAIN MATCH (n) RETURN n",
    "SHOW INDEXES YIELD name",
    "MATCH p = shortestPath((a:Fault)-[*]-(b:`Work Request`)) RETURN p",
    "MATCH (n) WHERE EXISTS { MATCH (n)-->(:System) } RETURN n {.name, key: n.key}",
    "RETURN $set",
    "MATCH (n) RETURN n.name AS ŝet",
]

WRITING = [
    "CREATE (n)",
    "MATCH (n) SET n.name = 'x'",
    "MATCH (n) sEt n:Other RETURN n",
    "MATCH (n) DETACH DELETE n",
    "MATCH (n) REMOVE n.name",
    "MERGE (n {a: 1}) RETURN n",
    "MATCH (n) FOREACH (x IN [1] | CREATE (:Y))",
    "LOAD CSV FROM 'file:///etc/passwd' AS line RETURN line",
    "MATCH (n) WITH n LOAD CSV FROM 'http://x' AS l RETURN l",
    "DROP INDEX x",
    "ALTER DATABASE neo4j SET ACCESS READ ONLY",
    "GRANT ROLE admin TO me",
    "USE system MATCH (n) RETURN n",
    "SHOW USERS",
    "SHOW TRANSACTIONS",
    "TERMINATE TRANSACTION 'x'",
    "START DATABASE x",
    "CALL merge.node(['X'], {a: 1}, {}) YIELD node RETURN node",
    "CALL apoc.cypher.doIt('CREATE (n)', {})",
    "CALL `db`.`labels`()",
    "CALL db.index.fulltext.createNodeIndex('a')",
    "MATCH (n) OPTIONAL CALL refactor.mergeNodes([n]) YIELD node RETURN node",
    "RETURN apoc.cypher.runFirstColumnSingle('CREATE (n)', {})",
    "RETURN util.sleep(100000)",
    "RETURN `util`.`sleep`(100000)",
    "RETURN `util.sleep`(100000)",
    "RETURN util /* */ . sleep (1)",
    "MATCH (n) RETURN n; CREATE (x)",
    "RETURN 1; RETURN 2",
    "CYPHER 25 MATCH (n) RETURN n",
    "SELECT FROM Fault",
    "INSERT (:Fault)",
    "RETURN 1. CREATE (n)",
    "RETURN 1CREATE (n)",
    "RETURN 1.5e3SET n.a = 1",
    "RETURN 0x1FCREATE (n)",
    "RETURN 'a'CREATE (n)",
    "RETURN [1..CREATE]",
    "RETURN x :: SET",
    "MATCH (n) RETURN 'a\\' CREATE (n) //'",
    "MATCH (n) RETURN \"a\\\" CREATE (n) //\"",
    "MATCH (n) RETURN 'a\\\\\\' CREATE (n) //'",
    "MATCH (n) \\u0043REATE (m)",
    "RETURN 'x\\u0027 CREATE (n) //'",
    "RETURN 1 // \r' \n CREATE (x) //'",
    "RETURN 1 //\u2028 CREATE (x)",
    "RETURN 1 //\x85 CREATE (x)",
    "RETURN 1 /* CREATE (x)",
    "RETURN 1 /*/ CREATE (x)",
    "RETURN 'open CREATE (x)",
    "RETURN `open CREATE (x)",
    "MATCH (n) \u017fET n.a = 1",
    "MATCH (n) \uff33\uff25\uff34 n.a = 1",
    "MATCH (n) CR\u200bEATE (m)",
    "MATCH (n) SET\u00a0n.a = 1",
    "",
    "   ;",
    "// nothing",
]  # fmt: skip


@pytest.mark.parametrize("cypher", READING)
def test_reading_passes(cypher: str) -> None:
    refuse_writes(cypher)


@pytest.mark.parametrize("cypher", WRITING)
def test_writing_is_refused(cypher: str) -> None:
    with pytest.raises(WriteRefused):
        refuse_writes(cypher)


def test_the_message_says_where_and_what_to_do() -> None:
    with pytest.raises(WriteRefused, match=r"`delete` \(character 11\).*backticks"):
        refuse_writes("MATCH (n) delete n")
    with pytest.raises(WriteRefused, match=r"character 4 \(U\+200B\)"):
        refuse_writes("MAT\u200bCH (n) RETURN n")


_case = st.sampled_from([str.upper, str.lower, str.title, str.swapcase])
_blank = st.sampled_from([" ", "\n", "\t", "\r\n", "/**/", " /* it's */ ", '// "\n', "  "])
_before = st.sampled_from(
    ["MATCH (n) ", "MATCH (n) WITH n ", "UNWIND [1] AS x ", "MATCH (n {a: 'x'}) ", "MATCH (`q``'`) ", 'WITH "\'" AS n ',
     "RETURN 1 AS a UNION ", "MATCH (n) CALL { WITH n ", "RETURN 1;"]
)  # fmt: skip


@given(st.sampled_from(sorted(REFUSED)), _case, _before, _blank, _blank)
def test_no_case_blank_or_comment_hides_a_clause(word: str, case: object, before: str, left: str, right: str) -> None:
    with pytest.raises(WriteRefused):
        refuse_writes(f"{before}{left}{case(word)}{right}(m)")


@given(st.sampled_from(sorted(REFUSED)), st.integers(1, 6), st.sampled_from(["/**/", "\\u0000", "\u200b", "\u00ad"]))
def test_a_word_in_pieces_is_no_clause_or_refused(word: str, at: int, piece: str) -> None:
    at = min(at, len(word) - 1)
    if piece == "/**/":  # two names for every lexer: nothing to fear, and nothing that runs
        refuse_writes(f"MATCH (n) {word[:at]}{piece}x{word[at:]} RETURN n")
    else:
        with pytest.raises(WriteRefused):
            refuse_writes(f"MATCH (n) {word[:at]}{piece}{word[at:]} n.a = 1")


@given(st.sampled_from(sorted(REFUSED)), st.integers(0, 5))
def test_a_unicode_escape_never_passes(word: str, at: int) -> None:
    at = min(at, len(word) - 1)
    with pytest.raises(WriteRefused):
        refuse_writes(f"MATCH (n) {word[:at]}\\u{ord(word[at]):04x}{word[at + 1 :]} n.a = 1")


@given(st.sampled_from(sorted(REFUSED)), st.from_regex(r"[A-Za-z0-9_]{1,8}", fullmatch=True), st.booleans())
def test_a_name_that_contains_a_word_is_a_name(word: str, more: str, lower: bool) -> None:
    name = f"x{more}{word}" if more.upper().endswith(("DE", "NO", "UN")) else f"{word}{more}"
    name = name.lower() if lower else name
    if name.upper() in REFUSED:
        name += "_"
    refuse_writes(f"MATCH ({name}:{name} {{{name}: 1}}) RETURN {name}.{name} AS {name}")
    refuse_writes(f"MATCH (n:{word}) RETURN n.{word}, '{word}', \"{word}\", `{word}` // {word}")


@given(st.text(max_size=60))
def test_whatever_passes_holds_no_bare_clause(text: str) -> None:
    cypher = f"MATCH (n) {text}"
    try:
        refuse_writes(cypher)
    except WriteRefused:
        return
    bare = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`|//[^\n]*|/\*.*?\*/|[.:$]\s*\w+", " ", cypher, flags=re.DOTALL)
    assert not {word.upper() for word in re.findall(r"\w+", bare)} & REFUSED


_pieces = st.lists(
    st.sampled_from(["'", '"', "`", "\\", "//", "/*", "*/", "\n", "\r", " ", ".", ":", "1", "n", "CREATE (x)",
                     "SET n.a=1", "''", "\\'", "``", "(n)", "{", "}", "RETURN", ";", "$"]),
    max_size=12,
)  # fmt: skip


@given(_pieces)
def test_every_reading_of_quotes_agrees(pieces: list[str]) -> None:
    """A lexer for which a backslash is nothing special sees no clause in what passes either."""
    cypher = "MATCH (n) " + "".join(pieces)
    try:
        refuse_writes(cypher)
    except WriteRefused:
        return
    simple = r"'[^']*'|\"[^\"]*\"|`[^`]*`|//[^\n]*|/\*.*?\*/|[:$]\s*\w+|(?<=[\w`)\]}])\s*\.\s*\w+"
    bare = re.sub(simple, " ", cypher, flags=re.DOTALL)
    assert not {word.upper() for word in re.findall(r"[^\W\d]\w*", bare)} & REFUSED


def test_openers_and_refused_words_are_apart() -> None:
    assert not OPENERS & REFUSED
