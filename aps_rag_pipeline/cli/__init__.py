"""`aps-rag`: the command line. Commands import what they need when they run, so that help is there at once.

Exit status: 0 done; 1 something is wrong that the output names (a feed failed, a check found something); 2 wrong usage
or configuration; 3 nothing found (no answer, no such record); 75 another writer holds the home;
130 interrupted.
"""

from __future__ import annotations

import atexit
import gc
import sys
from typing import NoReturn

import typer

from aps_rag_pipeline.cli import (
    asking,
    audit,
    backup,
    demo,
    facility,
    failures,
    graph,
    listen,
    pipeline,
    reindex,
    status,
)
from aps_rag_pipeline.cli.common import EXIT_USAGE, EXIT_WRONG, harmless

#: New objects that may be there, less those that are gone, before the collector looks for cycles among them.
_COLLECT_AFTER = 20_000

app = typer.Typer(
    name="aps-rag",
    help="Keep a facility's knowledge searchable, and ask it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit status: 0 done, 1 something is wrong, 2 usage or configuration, 3 nothing found, 75 home is taken.",
)
app.command("init")(facility.init)
app.add_typer(facility.config, name="config", help="Look at facility.yaml.")
app.command("sync")(pipeline.sync)
app.command("ui")(pipeline.ui)
app.command("status")(status.status)
app.add_typer(failures.app, name="failures", help="Items that could not be read.")
app.command("listen")(listen.listen)
app.command("purge")(pipeline.purge)
app.command("audit")(audit.audit)
app.command("reindex")(reindex.reindex)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("search")(asking.search)
app.command("ask")(asking.ask)
app.command("show")(asking.show)
app.add_typer(graph.app, name="graph", help="The Bolt server in the wheel, and read-only Cypher.")
app.add_typer(demo.app, name="demo", help="A made-up facility with known truth.")


def main() -> NoReturn:
    """Run a command; known errors become one line on standard error."""
    # The collector would look again and again through what is imported to stay, and once more, for a second, when the
    # process ends.
    gc.set_threshold(_COLLECT_AFTER)
    atexit.register(gc.freeze)
    try:
        app()
    except Exception as error:
        _explain(error)
    sys.exit(0)


def _explain(error: Exception) -> NoReturn:
    from aps_rag_pipeline.models import ModelError
    from aps_rag_pipeline.settings import SettingsError
    from aps_rag_pipeline.stores.home import HomeError
    from aps_rag_pipeline.stores.lock import EXIT_TAKEN, HomeTakenError
    from aps_rag_pipeline.stores.trouble import told

    if isinstance(error, HomeTakenError):
        code = EXIT_TAKEN
    elif isinstance(error, SettingsError):
        code = EXIT_USAGE
    elif isinstance(error, HomeError | ModelError):
        code = EXIT_WRONG
    elif trouble := told(error):
        error, code = HomeError(trouble), EXIT_WRONG
    else:
        raise error
    print(f"aps-rag: {harmless(error)}", file=sys.stderr)
    sys.exit(code)
