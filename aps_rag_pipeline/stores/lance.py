"""The one place that imports LanceDB, so that a question does not wait for what it never uses.

LanceDB imports the client of a remote catalog service whose 366 methods pydantic prepares one by one, a quarter of the
import. Prepared on their first call instead they behave the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


@functools.lru_cache(maxsize=1)
def lancedb() -> Any:
    """The module `lancedb`."""
    import pydantic

    prepared = pydantic.validate_call
    pydantic.validate_call = _on_first_call(prepared)
    try:
        import lancedb as module
    finally:
        pydantic.validate_call = prepared
    return module


def _on_first_call(prepare: Callable[..., Any]) -> Callable[..., Any]:
    def decorate(function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
        if function is None:
            return functools.partial(decorate, **options)

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            return prepare(function, **options)(*arguments, **named)

        return call

    return decorate
