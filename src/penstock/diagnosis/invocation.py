"""How a program was started, and whether somebody can answer: for hints that say how to start it again, and for questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import PenstockError


@dataclass(frozen=True, slots=True)
class Invocation:
    """`command`: the command line that runs the program, with one more option; None: the program runs itself.
    `confirm`: shows a refusal and asks a person whether to continue all the same; None: nobody can answer."""

    command: Callable[[str], str] | None = None
    confirm: Callable[[PenstockError, str], bool] | None = None

    def confirmed(self, refusal: PenstockError, question: str) -> bool:
        return self.confirm is not None and self.confirm(refusal, question)

    def again_with(self, option: str) -> str:
        """What to do to start the program again with an option, such as `--fall-back`."""
        if self.command is not None:
            return f"`{self.command(option)}`"
        setting = option.removeprefix("--").replace("-", "_")
        return f"`penstock run APP.py {option}`, or `env.execute({setting}=True)`"


UNATTENDED = Invocation()
"""A program that runs itself."""
