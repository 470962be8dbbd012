"""The user's function, opened in a worker, and how it is called: with a timeout, again after a failure, in a thread.

Everything but `open`, `close` and `ask_here` runs in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import CoroutineType
from typing import Any

from penstock.contexts import RuntimeContext
from penstock.errors import ReturnedValueError
from penstock.functions import AsyncFunction, Function, function_location
from penstock.runtime.awaited.event_loop import EventLoop
from penstock.runtime.awaited.terms import CallTerms
from penstock.runtime.operators.operator import method_of
from penstock.timing.durations import to_ms


class AsyncCaller(Function):
    """Calls a function, and waits for what it answers. Kept open in the worker, with its event loop."""

    def __init__(self, function: Any, method: str, terms: CallTerms, *, in_place: bool = False) -> None:
        self.function = function
        self.terms = terms
        self.freed: Callable[[], None] = lambda: None
        """Told when a thread is free again that a call had given up on."""
        self._method = method
        self._in_place = in_place
        self._retry = None if in_place else terms.retry
        self._timeout_s = None if terms.timeout_ms is None or in_place else terms.timeout_ms / 1000
        attempt = None if self._retry is None else self._retry.attempt_timeout
        self._attempt_s = None if attempt is None else to_ms(attempt) / 1000
        self._abandoned = 0

    # --- life cycle --------------------------------------------------------------------------------------------------------

    def open(self, context: RuntimeContext) -> None:
        self._context = context
        if isinstance(self.function, Function | AsyncFunction):
            self.function = copy.copy(self.function)
        self._call = method_of(self.function, self._method)
        own = type(self.function)
        replaced = issubclass(own, AsyncFunction) and own.timeout is not AsyncFunction.timeout
        self._in_time: Callable[[Any], Any] | None = self.function.timeout if replaced else None
        threads = self.terms.threads and not self._in_place
        self._threads = ThreadPoolExecutor(self.terms.capacity, f"penstock-{context.step}") if threads else None
        self.events = EventLoop(context.step, in_place=self._in_place)
        try:
            self.events.run(self._opened(context))
        except BaseException:
            self.events.close(_nothing())
            raise

    def close(self) -> None:
        try:
            self.events.close(self._closed())
        finally:
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)

    async def _opened(self, context: RuntimeContext) -> None:
        if callable(getattr(self.function, "open", None)):
            result = self.function.open(context)
            if inspect.isawaitable(result):
                await result

    async def _closed(self) -> None:
        if callable(getattr(self.function, "close", None)):
            result = self.function.close()
            if inspect.isawaitable(result):
                await result

    # --- calls -------------------------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """How many calls there may be at once now."""
        return self.terms.capacity - self._abandoned

    def count(self, what: str, by: int = 1) -> None:
        self._context.count(what, by)

    def ask_here(self, argument: Any) -> Any:
        """Ask in this thread, without a limit of time: somebody is looking."""
        return self.events.run(self.ask(argument))

    async def ask(self, argument: Any) -> Any:
        """The answer, however often it has to be asked, within the time there is."""
        if self._timeout_s is None:
            return await self._in_attempts(argument)
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                return await self._in_attempts(argument)
        except TimeoutError:
            if not limit.expired():
                raise
            self.count("timeouts")
            if self._in_time is not None:
                answer = self._in_time(argument)
                return await answer if inspect.isawaitable(answer) else answer
            raise TimeoutError(f"no answer within {self.terms.timeout_ms} ms") from None

    async def _in_attempts(self, argument: Any) -> Any:
        retry = self._retry
        if retry is None:
            return await self._once(argument)
        failures = 0
        while True:
            try:
                answer = await self._attempt(argument)
            except Exception as error:
                if failures == retry.attempts or not isinstance(error, retry.on) or isinstance(error, ReturnedValueError):
                    if failures:
                        error.add_note(f"after {failures + 1} attempts")
                    raise
            else:
                if failures == retry.attempts or retry.if_result is None or not retry.if_result(answer):
                    return answer
            failures += 1
            self.count("retries")
            await asyncio.sleep(retry.delay_s(failures))

    async def _attempt(self, argument: Any) -> Any:
        if self._attempt_s is None:
            return await self._once(argument)
        limit = asyncio.timeout(self._attempt_s)
        try:
            async with limit:
                return await self._once(argument)
        except TimeoutError:
            if not limit.expired():
                raise
            self.count("timeouts")
            raise TimeoutError(f"no answer within {round(self._attempt_s * 1000)} ms") from None

    async def _once(self, argument: Any) -> Any:
        if self._threads is not None:
            return await self._in_thread(self._threads, argument)
        result = self._call(argument)
        return await result if type(result) is CoroutineType else await self._awaited(result)

    async def _awaited(self, result: Any) -> Any:
        if self.terms.threads:  # called in place
            return result
        if inspect.isawaitable(result):
            return await result
        if hasattr(result, "__aiter__"):
            return [one async for one in result]
        raise ReturnedValueError(
            f"step {self._context.step!r}: the function returned a {type(result).__qualname__}, where it is awaited",
            detail=f"function: {function_location(self.function)}\nreturned: {result!r:.300}",
            hint="write it with async def, or say threads=True if it waits for its answer itself",
        )

    async def _in_thread(self, threads: ThreadPoolExecutor, argument: Any) -> Any:
        future = threads.submit(self._call, argument)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel() and not future.done():
                self._abandon(future)
            raise

    def _abandon(self, future: Future[Any]) -> None:
        """The thread cannot be stopped: it counts as a call until it comes back."""
        self._abandoned += 1
        loop = asyncio.get_running_loop()

        def back() -> None:
            self._abandoned -= 1
            self.freed()

        def done(_: Future[Any]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(back)

        future.add_done_callback(done)


async def _nothing() -> None:
    return None
