"""Options that a command does not know: refused with the one that was probably meant. A program's own options go behind `--`."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from penstock.cli.screen.problems import show_problem
from penstock.errors import ConfigError, did_you_mean

USAGE = 2
"""The exit code of a command line that makes no sense."""


class Command(TyperCommand):
    """A command of ours. `runs_program`: what stands behind `--` is for a program."""

    runs_program = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # By name: newer versions of typer have a click of their own.
            if type(error).__name__ != "NoSuchOption" or ctx.resilient_parsing:
                raise
            show_problem(self._unknown(str(getattr(error, "option_name", "")), given))
            raise typer.Exit(USAGE) from None

    def _unknown(self, option: str, given: list[str]) -> ConfigError:
        known = [name for one in self.params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")]
        hints = [did_you_mean(option, known)]
        if self.runs_program:
            hints.append(f"put the program's own options behind `--`: penstock {self.name} APP.py -- {option}")
        hints.append(f"`penstock {self.name} --help` lists the options of {self.name}")
        return ConfigError(f"penstock {self.name} has no option {option}", hint="\n".join(hint for hint in hints if hint))


class ProgramCommand(Command):
    runs_program = True
