"""What several commands share: exit statuses, options, the console."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from aps_rag_pipeline.settings import Settings

EXIT_WRONG = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_INTERRUPTED = 130

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="facility.yaml to use; else $APS_RAG_CONFIG, else ./facility.yaml"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Stable JSON on standard output, for programs.")]


def load_settings(config: Path | None) -> Settings:
    from aps_rag_pipeline.settings import Settings

    return Settings.load(config)


def console() -> Console:
    from rich.console import Console

    return Console()


def table(*columns: str) -> Any:
    """A table whose cells are shown as they are: nothing in them is markup or moves the cursor."""
    from rich import box
    from rich.table import Table

    class PlainTable(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*map(plain, cells), **options)

    made = PlainTable(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        made.add_column(plain(column), overflow="fold")
    return made


def plain(text: Any, style: str = "") -> Any:
    """Text of a source or an error as rich shows it, not as it obeys it."""
    from rich.text import Text

    return Text(harmless(text), style)


def harmless(text: Any) -> str:
    """Text that does nothing to a terminal."""
    from query.present import safe

    return safe(str(text))


def print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2, ensure_ascii=True, default=str))


def fail(message: str, code: int = EXIT_WRONG) -> typer.Exit:
    """Say what is wrong on standard error; raise the result."""
    typer.echo(f"aps-rag: {harmless(message)}", err=True)
    return typer.Exit(code)
