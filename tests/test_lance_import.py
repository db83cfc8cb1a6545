"""LanceDB is imported in less time and behaves the same."""

from __future__ import annotations

import subprocess
import sys

_LOOK = """
import pydantic, threading
kept = pydantic.validate_call, pydantic.ConfigDict
from aps_rag_pipeline.stores.lance import lancedb
threads = [threading.Thread(target=lancedb) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert lancedb() is __import__("lancedb")
assert lancedb().query.Query.__pydantic_complete__
assert (pydantic.validate_call, pydantic.ConfigDict) == kept
from lance_namespace_urllib3_client.api.table_api import TableApi
from lance_namespace_urllib3_client.models import ListTablesResponse
assert ListTablesResponse(tables=["a"]).to_dict() == {"tables": ["a"]}
for wrong in (lambda: ListTablesResponse(tables=7), lambda: TableApi().count_table_rows(id=7)):
    try:
        wrong()
    except pydantic.ValidationError:
        print("refused")
"""


def test_what_is_made_ready_at_its_first_use_checks_as_it_would_have() -> None:
    done = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["refused", "refused"], done.stderr
