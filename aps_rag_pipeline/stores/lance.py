"""The one place that imports LanceDB, so that a question does not wait for what it never uses.

A third of that import prepares what is not used here: the client of a remote catalog service, whose 366 methods and
160 models pydantic makes ready one by one, and a look at the bytecode of each class for what its methods override.
Methods and models are made ready at their first use instead, and behave the same; the look is left out.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

_importing = threading.Lock()


def lancedb() -> Any:
    """The module `lancedb`."""
    with _importing:  # two threads that both replace what is replaced here would put back each other's
        return _imported()


@functools.lru_cache(maxsize=1)
def _imported() -> Any:
    import pydantic

    with ExitStack() as replaced:
        replaced.enter_context(_replaced(pydantic, "validate_call", _on_first_call(pydantic.validate_call)))
        replaced.enter_context(_replaced(pydantic, "ConfigDict", _at_first_use))
        if sys.version_info < (3, 12):  # LanceDB needs this package only there
            import overrides

            replaced.enter_context(_replaced(overrides, "override", _unlooked))
        import lancedb as module
    module.query.Query.model_rebuild()  # this one every question uses, from several threads
    return module


@contextmanager
def _replaced(module: ModuleType, name: str, value: Any) -> Iterator[None]:
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


def _on_first_call(prepare: Callable[..., Any]) -> Callable[..., Any]:
    def decorate(function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
        if function is None:
            return functools.partial(decorate, **options)

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            return prepare(function, **options)(*arguments, **named)

        return call

    return decorate


def _at_first_use(**options: Any) -> dict[str, Any]:
    """The settings of a pydantic model that is made ready when it is first used."""
    return {"defer_build": True, **options}


def _unlooked(method: Any = None, /, **_: Any) -> Any:
    """Marks a method as one that overrides another, as `overrides.override` does, without looking for the other."""
    if method is None:
        return _unlooked
    method.__override__ = True
    return method
