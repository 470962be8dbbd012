"""`penstock explain`: a program's plan, without running it."""

from __future__ import annotations

import json
from typing import Annotated, NoReturn

import typer

from penstock.api.environment import StreamEnvironment, intercept, overrides
from penstock.cli.problems import clean_errors
from penstock.cli.program import run_program
from penstock.errors import PlanError
from penstock.plan.explain import explain_data


class _Executed(BaseException):
    """The program has come to its execute(): the rest of it would wait for results in vain."""

    def __init__(self, env: StreamEnvironment) -> None:
        self.env = env


def explain_command(
    program: Annotated[str, typer.Argument(metavar="APP.py", help="The program.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="The program's own arguments.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    parallelism: Annotated[int | None, typer.Option(help="Partitions of each stage.")] = None,
    trace: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    """Show a program's steps, stages, exchanges, state and ids."""
    with clean_errors(trace=trace):
        env = planned(program, arguments or [], {} if parallelism is None else {"parallelism": parallelism})
        if as_json:
            typer.echo(json.dumps(explain_data(env.graph, env.config), indent=2))
        else:
            typer.echo(env.explain(), nl=False)


def planned(program: str, arguments: list[str], settings: dict[str, object]) -> StreamEnvironment:
    """The environment as it was when the program first executed it."""

    def found(env: StreamEnvironment) -> NoReturn:
        raise _Executed(env)

    intercepted, overridden = intercept.set(found), overrides.set(settings)
    try:
        run_program(program, arguments)
    except _Executed as executed:
        return executed.env
    finally:
        intercept.reset(intercepted)
        overrides.reset(overridden)
    raise PlanError(f"{program} ended without executing anything", hint="end the program with env.execute()")
