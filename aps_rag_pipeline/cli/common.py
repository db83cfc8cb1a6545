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
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2, ensure_ascii=True, default=str))


def fail(message: str, code: int = EXIT_WRONG) -> typer.Exit:
    """Say what is wrong on standard error; raise the result."""
    typer.echo(f"aps-rag: {message}", err=True)
    return typer.Exit(code)
