"""Services that async steps ask in tests, in this process."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

from penstock.functions import AsyncFunction


@dataclass(frozen=True)
class Query:
    """`turns`: of the event loop that it takes; `fails`: so many times, then it is answered; None: never."""

    number: int
    turns: int = 0
    fails: int | None = 0

    def answer(self) -> Any:
        if self.fails is None:
            raise ConnectionError(f"no answer to {self.number}")
        return self.number * 10


class Service(AsyncFunction[Query, int]):
    """Answers after as many turns of the event loop as the query says."""

    def __init__(self) -> None:
        self.failures: Counter[int] = Counter()
        self.running = self.most = self.asked = 0

    async def async_invoke(self, value: Query) -> int:
        self.asked += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for _ in range(value.turns):
                await asyncio.sleep(0)
        finally:
            self.running -= 1
        if value.fails is None or self.failures[value.number] < value.fails:
            self.failures[value.number] += 1
            raise ConnectionError(f"no answer to {value.number}")
        self.failures.pop(value.number, None)
        answer = value.answer()
        assert isinstance(answer, int)
        return answer
