"""`aps-rag demo`: the made-up facility, its next day, and how well it is answered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aps_rag_pipeline.cli.common import EXIT_USAGE, JsonOption, console, fail, load_settings, print_json, table

if TYPE_CHECKING:
    from aps_rag_pipeline.demo.score import ScoreTable

app = typer.Typer(no_args_is_help=True)
OutOption = Annotated[Path, typer.Option("--out", help="Folder of the demo facility.")]


@app.command("write")
def write(
    out: OutOption = Path("demo"),
    seed: Annotated[int, typer.Option(help="The same seed gives the same facility.")] = 7,
    records: Annotated[int, typer.Option(min=100, help="About how many records.")] = 3000,
    held_out: Annotated[bool, typer.Option("--held-out", help="Use phrases that the default never shows.")] = False,
) -> None:
    """Write all nine sources, their truth and a facility.yaml."""
    from aps_rag_pipeline.demo.write import write as write_demo

    if (out / "truth.json").exists():
        raise fail(f"{out} holds a demo facility already; remove it or choose another --out", EXIT_USAGE)
    summary = write_demo(out, seed=seed, records=records, held_out=held_out)
    counts = ", ".join(f"{count:,} {source}" for source, count in summary.counts.items())
    typer.echo(f"wrote {summary.records:,} records to {out}: {counts}")


@app.command("advance")
def advance(out: OutOption = Path("demo"), as_json: JsonOption = False) -> None:
    """Make the next day's changes: records added, edited, relabelled and deleted."""
    import msgspec

    from aps_rag_pipeline.demo.advance import advance as next_day

    report = next_day(out)
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        typer.echo(
            f"day {report.day}: {len(report.added)} added, {len(report.edited)} edited, "
            f"{len(report.relabelled)} relabelled, {len(report.deleted)} deleted"
        )


@app.command("serve")
def serve(
    out: OutOption = Path("demo"),
    port: Annotated[int, typer.Option(help="First of five ports on loopback; 0 takes free ones.")] = 8700,
) -> None:
    """Serve five of the sources live on loopback: BELY, WebCenter, Microsoft Graph, MediaWiki, Archiver Appliance."""
    import threading

    from aps_rag_pipeline.demo.live.serve import SERVICES, SETTINGS, PortTakenError, serving

    try:
        with serving(out, port) as urls:
            shown = table("feed", "service", "address")
            for service in SERVICES:
                shown.add_row(service.feed, service.what, urls[service.feed])
            console().print(shown)
            typer.echo(f"in another terminal: aps-rag sync -c {out / SETTINGS}\nctrl-c ends the services")
            threading.Event().wait()
    except FileNotFoundError as error:
        raise fail(f"{out} holds no demo facility; `aps-rag demo write --out {out}` writes one", EXIT_USAGE) from error
    except PortTakenError as error:
        raise fail(str(error), EXIT_USAGE) from error
    except KeyboardInterrupt:
        typer.echo("the services have ended")


@app.command("tour")
def tour(out: OutOption = Path("demo")) -> None:
    """Ask three of the planted questions and show the answers."""
    from aps_rag_pipeline.demo.truth import load_truth
    from query import Corpus
    from query.present import render_answer

    settings = load_settings(out / "facility.yaml")
    shown = console()
    with Corpus.open(settings.home, None, shifts=settings.shifts) as corpus:
        for kind in ("identifier", "troubleshooting", "multi_hop"):
            question = next(q for q in load_truth(out).questions if q.type == kind and q.answerable)
            shown.rule(question.text, style="dim")
            shown.print(render_answer(corpus.ask(question.text), settings.zone))


@app.command("score")
def score(out: OutOption = Path("demo"), as_json: JsonOption = False) -> None:
    """Ask the planted questions and compare with the planted truth."""
    import msgspec

    from aps_rag_pipeline.demo.score import score as score_answers
    from aps_rag_pipeline.demo.truth import load_truth
    from query import Corpus

    settings = load_settings(out / "facility.yaml")
    with Corpus.open(settings.home, None, shifts=settings.shifts) as corpus:

        def search(text: str, k: int) -> list[str]:
            return [hit.key for hit in corpus.search(text, k).hits]

        def ask(text: str) -> tuple[bool, str, list[str]]:
            answer = corpus.ask(text)
            return answer.answered, answer.text, [key for sentence in answer.sentences for key in sentence.keys]

        result = score_answers(load_truth(out), search, ask)
    if as_json:
        print_json(msgspec.to_builtins(result))
    else:
        _show_score(result)


def _show_score(result: ScoreTable) -> None:
    shown = table("questions", "", "Hit@1", "Hit@5", "MRR", "answered", "nuggets", "cites gold")
    for row in (*result.types, result.all):
        figures = (row.hit_1, row.hit_5, row.mrr, row.answered, row.nuggets, row.cited)
        shown.add_row(row.type, str(row.questions), *(f"{figure:.3f}" for figure in figures))
    names = table("identifiers", "", "right record first")
    for kind in result.identifiers:
        names.add_row(kind.kind, str(kind.identifiers), f"{kind.first:.3f}")
    console().print(shown, names)
    typer.echo(
        f"{result.unanswerable} unanswerable questions: refusal precision {result.refusal_precision:.3f}, "
        f"recall {result.refusal_recall:.3f}"
    )
