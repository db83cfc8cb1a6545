"""`aps-rag graph up|down|status|query`: the Bolt server that ships in a wheel, and read-only Cypher."""

from __future__ import annotations

from typing import Annotated

import typer

from aps_rag_pipeline.cli.common import EXIT_USAGE, ConfigOption, JsonOption, console, fail, load_settings, print_json

app = typer.Typer(no_args_is_help=True)


@app.command("up")
def up(config_file: ConfigOption = None) -> None:
    """Start the server on loopback, with a random password, and project the graph into it."""
    from aps_rag_pipeline.stores import bolt_server
    from aps_rag_pipeline.stores.bolt import GraphError
    from aps_rag_pipeline.stores.home import Home
    from aps_rag_pipeline.stores.lock import WriterLock
    from aps_rag_pipeline.sync.pipeline import open_workspace
    from aps_rag_pipeline.sync.projection import project

    settings = load_settings(config_file)
    try:
        address = bolt_server.up(Home(settings.home).create())
        with open_workspace(settings) as workspace:
            limits = settings.limits
            with WriterLock(workspace.home, limits.lock_timeout_s, "graph up"):
                report = project(workspace)
    except GraphError as error:
        raise fail(str(error)) from error
    counts = report.counts
    typer.echo(f"{address.uri} as {address.user}; projected {counts['nodes']} nodes and {counts['edges']} edges")


@app.command("down")
def down(config_file: ConfigOption = None) -> None:
    """Stop the server."""
    from aps_rag_pipeline.stores import bolt_server
    from aps_rag_pipeline.stores.home import Home

    stopped = bolt_server.down(Home(load_settings(config_file).home))
    typer.echo("stopped" if stopped else "no server was running")


@app.command("query")
def query(
    cypher: str,
    limit: Annotated[int, typer.Option(help="Most rows to give.")] = 100,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait.")] = 30.0,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a reading Cypher query on the whole graph, labels or not; anything that writes is refused."""
    from aps_rag_pipeline.cli.common import table
    from aps_rag_pipeline.stores.bolt import GraphError
    from aps_rag_pipeline.stores.bolt_server import address_for
    from aps_rag_pipeline.stores.cypher import WriteRefused, run_query
    from aps_rag_pipeline.stores.home import Home

    settings = load_settings(config_file)
    address = address_for(settings, Home(settings.home))
    if address is None:
        raise fail("no Bolt server is configured or running; `aps-rag graph up` starts one")
    try:
        answer = run_query(address, cypher, limit, timeout_s)
    except WriteRefused as error:
        raise fail(str(error), EXIT_USAGE) from error
    except GraphError as error:
        raise fail(str(error)) from error
    if as_json:
        print_json({"columns": answer.columns, "rows": answer.rows, "truncated": answer.truncated})
        return
    shown = table(*answer.columns)
    for row in answer.rows:
        shown.add_row(*row)
    console().print(shown)
    if answer.truncated:
        typer.echo(f"cut after {limit} rows; --limit gives more")
