"""Cypher for people: our own read-only check, and a query that ends.

The check reads the tokens of a statement as the servers do (strings, quoted names, comments) and refuses every clause
that is not one of a reading query, wherever it stands. Text that two lexers could read in two ways is refused as well.
"""

from __future__ import annotations

import asyncio
import math
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from aps_rag_pipeline.stores.bolt import GraphAddress, GraphError, translated

if TYPE_CHECKING:
    import neo4j

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class WriteRefused(GraphError):
    """A statement that is not plainly a reading one; the message says what stood where."""


#: Words that write, administer or reach outside the database, in whatever clause.
REFUSED = frozenset(
    (
        *("ALTER", "CREATE", "DELETE", "DENY", "DETACH", "DROP", "FOREACH", "GRANT", "INSERT", "LOAD", "MERGE"),
        *("NODETACH", "REMOVE", "RENAME", "REVOKE", "SET", "TERMINATE", "USE"),
    )
)
#: Words that may open a statement; all of administration has others.
OPENERS = frozenset(("CALL", "EXPLAIN", "MATCH", "OPTIONAL", "PROFILE", "RETURN", "SHOW", "UNWIND", "WITH"))
SHOWN = frozenset(("CONSTRAINT", "CONSTRAINTS", "DATABASES", "FUNCTIONS", "INDEX", "INDEXES", "PROCEDURES"))
#: Procedures that tell the schema of the database and nothing else.
PROCEDURES = frozenset(
    (
        "db.labels",
        "db.propertykeys",
        "db.relationshiptypes",
        "db.schema.nodetypeproperties",
        "db.schema.reltypeproperties",
        "db.schema.visualization",
        "dbms.components",
    )
)
#: Namespaces of functions that only compute. Others sleep, or run statements of their own.
FUNCTIONS = frozenset(
    (
        *("agg", "coll", "convert", "date", "datetime", "duration", "geo", "localdatetime", "localtime", "map"),
        *("math", "node", "point", "rel", "text", "time", "vector"),
    )
)

_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\n\r]+|//[^\n\r]*|/\*.*?\*/)
  | (?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
  | (?P<quoted>`(?:[^`\\]|``)*`)
  | (?P<word>[^\W\d]\w*)
  | (?P<number>(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?!\w))
  | (?P<sign>[-+*/%^=<>!~.,:;|&?$()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
#: Line ends and format signs that lexers disagree on, and blanks that are no ASCII.
_ODD_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
_ESCAPED_QUOTE = re.compile(r"(?<!\\)(?:\\\\)*\\['\"`]")
_CLOSING = frozenset(")]}")


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """The word as a careless lexer could read it: wide, accented or dotless letters as plain capitals."""
        return unicodedata.normalize("NFKC", self.text).upper() if self.kind == "word" else ""


_END = _Token("end", "", -1)


def refuse_writes(cypher: str) -> None:
    """Admit one reading statement.

    Words inside strings, comments and longer names do no harm, nor does a property (`n.set`) or a label (`:Delete`)
    that is such a word; another name that is one must be quoted with backticks.

    Raises:
        WriteRefused: it writes, calls, administers or loads something, is several statements, or is ambiguous.
    """
    tokens = _tokens(cypher)
    if tokens and tokens[-1].text == ";":
        tokens.pop()
    if not tokens:
        raise WriteRefused("there is no statement")
    first, second = tokens[0], tokens[1] if len(tokens) > 1 else _END
    if first.word not in OPENERS:
        raise _refused(first, f"a reading statement begins with one of {', '.join(sorted(OPENERS))}")
    if first.word == "SHOW" and second.word not in SHOWN:
        raise _refused(second, f"SHOW is for {', '.join(sorted(SHOWN))}")
    for index, token in enumerate(tokens):
        if token.text == ";":
            raise _refused(token, "one statement at a time")
        if token.kind in ("word", "quoted"):
            _check_name(tokens, index)


def _tokens(cypher: str) -> list[_Token]:
    for at, char in enumerate(cypher):
        lone_return = char == "\r" and cypher[at + 1 : at + 2] != "\n"
        if (char not in "\t\n\r" and unicodedata.category(char) in _ODD_CATEGORIES) or lone_return:
            raise WriteRefused(f"character {at + 1} (U+{ord(char):04X}) does not show; leave it out")
    if re.search(r"\\[uU]", cypher):
        raise WriteRefused(r"an escape such as \u0041 could hide a word; write the character itself")
    found, at = [], 0
    while at < len(cypher):
        match = _TOKEN.match(cypher, at)
        if match is None or (cypher.startswith("/*", at) and not match.group().endswith("*/")):
            raise WriteRefused(f"character {at + 1} ({cypher[at]!r}): not closed, or no sign of Cypher")
        kind = match.lastgroup or ""
        if kind == "string" and _ESCAPED_QUOTE.search(match.group()[1:-1]):
            raise WriteRefused(f"character {at + 1}: an escaped quote is ambiguous; use the other kind of quotes")
        if kind != "blank":
            found.append(_Token(kind, match.group(), at))
        at = match.end()
    return found


def _check_name(tokens: list[_Token], index: int) -> None:
    """Refuse a word that is a clause, a procedure that is not known, and a function that may do more than compute."""
    token = tokens[index]
    before = tokens[index - 1] if index else _END
    earlier = tokens[index - 2] if index > 1 else _END
    # `1.` may be a number that ends before the word, so a dot makes a property only behind something that has some.
    is_property = before.text == "." and (earlier.kind in ("word", "quoted") or earlier.text in _CLOSING)
    is_label = before.text == ":" and earlier.text != ":"
    parameter = before.text == "$"
    if token.word in REFUSED and not (is_property or is_label or parameter):
        raise _refused(token, "only reading statements are run; quote a name with backticks")
    if token.word == "CALL" and not (is_property or is_label or parameter):
        _check_call(tokens, index + 1)
    elif not is_property:
        _check_function(tokens, index)


def _check_call(tokens: list[_Token], start: int) -> None:
    following = tokens[start] if start < len(tokens) else _END
    if following.text in ("{", "("):  # a subquery: its own words are checked like all others
        return
    name, _ = _dotted(tokens, start)
    if name.casefold() not in PROCEDURES:
        raise _refused(following, f"CALL is for subqueries and for {', '.join(sorted(PROCEDURES))}")


def _check_function(tokens: list[_Token], start: int) -> None:
    name, end = _dotted(tokens, start)
    is_call = end < len(tokens) and tokens[end].text == "("
    namespace, dot, _ = name.partition(".")
    if is_call and ("`" in name or (dot and namespace.casefold() not in FUNCTIONS)):
        called = start and tokens[start - 1].word == "CALL"
        if not called:
            raise _refused(tokens[start], f"functions with a dot are called from {', '.join(sorted(FUNCTIONS))} only")


def _dotted(tokens: list[_Token], start: int) -> tuple[str, int]:
    """The dotted name that begins at `start`, and the index behind it."""
    parts, at = [], start
    while at < len(tokens) and tokens[at].kind in ("word", "quoted"):
        parts.append(tokens[at].text)
        at += 1
        if at + 1 < len(tokens) and tokens[at].text == ".":
            at += 1
        else:
            break
    return ".".join(parts), at


def _refused(token: _Token, why: str) -> WriteRefused:
    where = f"`{token.text}` (character {token.at + 1})" if token.at >= 0 else "the statement's end"
    return WriteRefused(f"refused at {where}: {why}")


# running


@dataclass(frozen=True)
class Answer:
    """Rows of plain JSON values. `truncated` says that there were further ones."""

    columns: list[str]
    rows: list[list[Json]]
    truncated: bool


def run_query(address: GraphAddress, cypher: str, limit: int = 100, timeout: float = 30.0) -> Answer:
    """The first `limit` rows of a reading statement, within `timeout` seconds.

    Raises:
        WriteRefused: the statement is not plainly a reading one.
        GraphError: the server cannot be used, the statement is wrong, or it takes too long.
    """
    return asyncio.run(query(address, cypher, limit, timeout))


async def query(address: GraphAddress, cypher: str, limit: int = 100, timeout: float = 30.0) -> Answer:
    """`run_query` for callers that have an event loop."""
    refuse_writes(cypher)
    address.check()
    try:
        with translated(address):
            # Ours, since the small server keeps no time limit of a transaction.
            async with asyncio.timeout(timeout):
                return await _query(address, cypher, limit, timeout)
    except TimeoutError:
        raise GraphError(f"no answer within {timeout:g} s; narrow the query or raise the time limit") from None


async def _query(address: GraphAddress, cypher: str, limit: int, timeout: float) -> Answer:
    from neo4j import READ_ACCESS, AsyncGraphDatabase, Query

    auth = (address.user, address.password)
    async with (
        AsyncGraphDatabase.driver(address.uri, auth=auth, user_agent="aps-rag", connection_timeout=timeout) as driver,
        driver.session(database=address.database, default_access_mode=READ_ACCESS, fetch_size=limit + 1) as session,
    ):
        result = await session.run(Query(cypher, timeout=timeout))
        records = await result.fetch(limit + 1)
        rows = [[_json(value) for value in record.values()] for record in records[:limit]]
        return Answer(list(result.keys()), rows, len(records) > limit)


def _json(value: Any) -> Json:
    """A value of the driver as plain JSON: nodes, relationships and paths as objects, times as ISO 8601."""
    from neo4j import graph, spatial

    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, graph.Node):
        return {"labels": [*sorted(value.labels)], "properties": _json(dict(value))}
    if isinstance(value, graph.Relationship):
        ends = [_id(node) for node in (value.start_node, value.end_node)]
        return {"type": value.type, "start": ends[0], "end": ends[1], "properties": _json(dict(value))}
    if isinstance(value, graph.Path):
        steps = [_json(relationship) for relationship in value.relationships]
        return {"nodes": [_json(node) for node in value.nodes], "relationships": steps}
    if isinstance(value, spatial.Point):
        return {"srid": value.srid, "coordinates": [float(part) for part in value]}
    if isinstance(value, dict):
        return {str(name): _json(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [_json(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value.iso_format() if hasattr(value, "iso_format") else str(value)


def _id(node: neo4j.graph.Node | None) -> str | None:
    """The node's own id; the server's where only a stub of the node came along."""
    return None if node is None else str(node.get("node_id", node.element_id))
