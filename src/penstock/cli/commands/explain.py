"""`penstock explain`: a program's plan, without running it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors
from penstock.compile.explain import explain_data, explain_text
from penstock.compile.in_process import within
from penstock.compile.mermaid import explain_mermaid
from penstock.diagnosis.redaction import redact_data, redact_text


def explain_command(
    program: Annotated[str, typer.Argument(metavar="APP.py", help="The program.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The program's own arguments; its options go behind --.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")] = False,
    parallelism: Annotated[int | None, typer.Option(help="Partitions of each stage.")] = None,
    trace: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    """Show a program's steps, stages, exchanges, state and ids."""
    settings = {} if parallelism is None else {"parallelism": parallelism}
    with clean_errors(trace=trace):
        graph, config = within(lambda env: (env.graph, env.config), program, arguments or [], settings=settings)
        if as_json:
            echo(json.dumps(redact_data(explain_data(graph, config)), indent=2))
        elif as_mermaid:
            echo(redact_text(explain_mermaid(graph, config)), nl=False)
        else:
            echo(redact_text(explain_text(graph, config)), nl=False)
