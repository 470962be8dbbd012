"""An event loop that a worker keeps: in a thread of its own, so that connections stay alive and answers are taken while the
task does something else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")

_PATIENCE_S = 10.0
"""How long a function may take to close."""


class EventLoop:
    """Runs coroutines for a thread that waits for them. `in_place`: in that thread, for a debugger."""

    def __init__(self, name: str, *, in_place: bool = False) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        if not in_place:
            self._thread = threading.Thread(target=self.loop.run_forever, name=f"penstock-async-{name}", daemon=True)
            self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, R], timeout_s: float | None = None) -> R:
        """Run it to its end, and return its result."""
        if self._thread is None:
            return self.loop.run_until_complete(coroutine)
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout_s)

    def close(self, closing: Coroutine[Any, Any, None]) -> None:
        """Run the last coroutine, cancel what is left, and end."""
        if self._thread is not None and not self._thread.is_alive():
            closing.close()
            self.loop.close()
            return
        try:
            self.run(self._wind_up(closing), _PATIENCE_S)
        finally:
            if self._thread is not None:
                self.loop.call_soon_threadsafe(self.loop.stop)
                self._thread.join(_PATIENCE_S)
            if self._thread is None or not self._thread.is_alive():
                self.loop.close()

    async def _wind_up(self, closing: Coroutine[Any, Any, None]) -> None:
        try:
            await closing
        finally:
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await self.loop.shutdown_asyncgens()
