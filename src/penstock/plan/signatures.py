"""Can a function be called the way its step will call it? Found out when the step is built, not by the first record.

What has no signature to look at (many C functions) is taken on trust.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from penstock.errors import PlanError
from penstock.functions import Call, function_location
from penstock.ids import StepId

_STUBS = (
    "penstock.functions",
    "penstock.windows.functions",
    "penstock.windows.assigners",
    "penstock.windows.triggers",
)
"""Where the base classes are that a user's classes derive from."""


def check_calls(step: StepId, calls: Iterable[Call]) -> None:
    """Refuse a function that lacks a method, or takes other arguments than it will be given."""
    for call in calls:
        if call.optional and call.method is None:
            continue
        if call.method is None or _inherited_stub(call):
            raise PlanError(
                f"step {step!r}: {type(call.function).__qualname__} has no {call.expected}",
                detail=f"function: {function_location(call.function)}",
                hint=f"write a method {call.expected}",
            )
        _check_kind(step, call)
        problem = _cannot_be_called(call)
        if problem:
            raise PlanError(
                f"step {step!r}: the function cannot be called as {call.expected}: {problem}",
                detail=f"function: {_location(call)}\nit is: {_shown(call)}",
                hint=f"let it take {_arguments(call)}",
            )


def _check_kind(step: StepId, call: Call) -> None:
    """Refuse a function whose call runs nothing: a coroutine that nobody awaits, a generator where one value is expected; and one
    that would keep the others waiting."""
    if call.awaited:
        _check_awaited(step, call)
        return
    if _is(call.method, inspect.iscoroutinefunction) or _is(call.method, inspect.isasyncgenfunction):
        if call.awaited is None:
            raise PlanError(
                f"step {step!r}: {call.expected} is an async function, and threads=True is for functions that are not",
                detail=f"function: {_location(call)}",
                hint="leave threads=True out: calls of an async function are awaited together",
            )
        raise PlanError(
            f"step {step!r}: {call.expected} is an async function, which is never awaited",
            detail=f"function: {_location(call)}",
            hint="use async_map(...), which awaits many calls at once; or write it with def, and wait for the answer in it",
        )
    if not call.several and _is(call.method, inspect.isgeneratorfunction):
        raise PlanError(
            f"step {step!r}: {call.expected} is a generator function (it has a yield), where one value is expected",
            detail=f"function: {_location(call)}",
            hint="return the value; to give any number of records use flat_map(...) or process(...)",
        )


def _check_awaited(step: StepId, call: Call) -> None:
    """What has no code to look at, and a lambda, may give something to await all the same."""
    function = inspect.unwrap(call.method) if callable(call.method) else call.method
    if _is(function, inspect.iscoroutinefunction) or (call.several and _is(function, inspect.isasyncgenfunction)):
        return
    if _is(function, inspect.isasyncgenfunction):
        raise PlanError(
            f"step {step!r}: {call.expected} is an async generator function (it has a yield), where one value is awaited",
            detail=f"function: {_location(call)}",
            hint="return the value; to give any number of records use async_flat_map(...)",
        )
    if getattr(function, "__name__", "") != "<lambda>":
        raise PlanError(
            f"step {step!r}: {call.expected} is not an async function: calls of it would wait for one another",
            detail=f"function: {_location(call)}",
            hint="write it with async def, and await the answer in it; or, if the client has no asyncio, say threads=True",
        )


def _is(function: Any, kind: Callable[[Any], bool]) -> bool:
    """Is it a function of that kind, or an object whose `__call__` is?"""
    return kind(function) or (not isinstance(function, type) and kind(getattr(function, "__call__", None)))  # noqa: B004


def _inherited_stub(call: Call) -> bool:
    """The method of a base class of ours that only says what is to be written."""
    code = getattr(call.method, "__code__", None)
    return (
        not call.optional
        and getattr(call.method, "__module__", "") in _STUBS
        and code is not None
        and "NotImplementedError" in code.co_names
    )


def _cannot_be_called(call: Call) -> str:
    assert call.method is not None
    try:
        signature = inspect.signature(call.method)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*call.arguments)
    except TypeError as error:
        return str(error)
    return ""


def _location(call: Call) -> str:
    """Of the method, if it has a place in a file; otherwise of the function."""
    code = getattr(call.method, "__code__", None)
    if code is None:
        return function_location(call.function)
    return f"{getattr(call.method, '__qualname__', '?')} ({code.co_filename}:{code.co_firstlineno})"


def _shown(call: Call) -> str:
    assert call.method is not None
    return f"{getattr(call.method, '__name__', call.name)}{inspect.signature(call.method)}"


def _arguments(call: Call) -> str:
    if not call.arguments:
        return "no arguments"
    count = {1: "one argument", 2: "two arguments", 3: "three arguments", 4: "four arguments"}[len(call.arguments)]
    return f"{count}: {', '.join(call.arguments)}"
