"""`dbt_like_sql`: one `select` per file. The file's name is its table's, the first comment its description, and its
references, which give the lineage, are read from DuckDB's own syntax tree."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

PACKAGE = "dbt_like_sql"

#: Released tables that a model may read, beside other models.
INPUTS = ("records", "edges")


class SqlModelError(ValueError):
    """A file of dbt_like_sql that cannot be used; the message names it."""


@dataclass(frozen=True)
class SqlModel:
    name: str
    layer: str  # staging | marts | tests
    path: Path
    sql: str

    @property
    def description(self) -> str:
        lines = []
        for line in self.sql.lstrip().splitlines():
            if not line.startswith("--"):
                break
            lines.append(line.removeprefix("--").strip())
        return " ".join(lines)

    @cached_property
    def references(self) -> tuple[str, ...]:
        """Tables this model selects from, sorted."""
        import duckdb

        with duckdb.connect() as connection:
            row = connection.execute("select json_serialize_sql(?)", [self.sql]).fetchone()
        tree: dict[str, Any] = json.loads(row[0]) if row else {"error": True}
        if tree.get("error") or len(tree.get("statements", [])) != 1:
            raise SqlModelError(f"{self.path}: must be one select ({tree.get('error_message', 'it is not')})")
        return tuple(sorted(set(_tables(tree["statements"][0]["node"], frozenset()))))

    @cached_property
    def code_version(self) -> str:
        return hashlib.blake2b(self.sql.encode(), digest_size=6).hexdigest()


@lru_cache(maxsize=1)
def load_models() -> dict[str, SqlModel]:
    """All models by name.

    Raises:
        SqlModelError: two files of one name, a file that is no select, or a reference to nothing.
    """
    root = Path(str(files(PACKAGE) / "marts")).parent  # the package is a folder of data without a module
    found: dict[str, SqlModel] = {}
    for path in sorted(root.glob("*/*.sql")):
        if path.stem in found:
            raise SqlModelError(f"{path}: there is {found[path.stem].path} of the same name")
        found[path.stem] = SqlModel(path.stem, path.parent.name, path, path.read_text("utf-8"))
    for model in found.values():
        for name in model.references:
            if name not in found and name not in INPUTS:
                raise SqlModelError(f"{model.path}: selects from {name}, which is neither a model nor one of {INPUTS}")
    return found


def in_order(models: dict[str, SqlModel]) -> list[SqlModel]:
    """Models after everything they select from.

    Raises:
        SqlModelError: they refer to each other in a circle.
    """
    done: dict[str, SqlModel] = {}
    waiting = dict(models)
    while waiting:
        ready = [m for m in waiting.values() if all(name in done or name in INPUTS for name in m.references)]
        if not ready:
            raise SqlModelError(f"{PACKAGE}: a circle among {', '.join(sorted(waiting))}")
        for model in ready:
            done[model.name] = waiting.pop(model.name)
    return list(done.values())


def _tables(node: Any, scope: frozenset[str]) -> Iterator[str]:
    """Names of base tables below a node that no common table expression in scope stands for."""
    if isinstance(node, list):
        for item in node:
            yield from _tables(item, scope)
        return
    if not isinstance(node, dict):
        return
    if node.get("type") == "RECURSIVE_CTE_NODE":
        scope |= {node.get("cte_name", "")}
    for entry in node.get("cte_map", {}).get("map", []):
        # A common table expression sees those before it, not itself: `with a as (select * from a)` reads the real a.
        yield from _tables(entry["value"], scope)
        scope |= {entry["key"]}
    if node.get("type") == "BASE_TABLE":
        if node["table_name"] not in scope:
            yield node["table_name"]
        return
    for key, value in node.items():
        if key != "cte_map":
            yield from _tables(value, scope)
