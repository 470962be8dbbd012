"""How this program was started, and who is there: for hints that say how to start it again, and for questions."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from penstock.errors import PenstockError

command: ContextVar[Callable[[str], str] | None] = ContextVar("penstock_command", default=None)
"""The command line that runs the program, with one more option; None: the program runs itself, without `penstock run`."""


confirm: ContextVar[Callable[[PenstockError, str], bool] | None] = ContextVar("penstock_confirm", default=None)
"""Shows a refusal and asks whether to go on anyway, if somebody is there to ask: how the command line does."""


def go_on_anyway(refusal: PenstockError, question: str) -> bool:
    """Somebody was asked, and said yes."""
    ask = confirm.get()
    return ask is not None and ask(refusal, question)


def again_with(option: str) -> str:
    """What to do to start the program again with an option, such as `--fall-back`."""
    line = command.get()
    if line is not None:
        return f"`{line(option)}`"
    setting = option.removeprefix("--").replace("-", "_")
    return f"`penstock run APP.py {option}`, or `env.execute({setting}=True)`"
