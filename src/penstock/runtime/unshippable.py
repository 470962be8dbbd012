"""What of a step cannot be sent to workers, and where it is: looked for when pickling has failed.

Every object is tried by itself; of one that fails, so are its parts. The way to the innermost one that fails is what a person
needs to know: which variable of which function.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from penstock.errors import PlanError, UserCodeError
from penstock.functions import function_location
from penstock.plan import job_pickle

DEEPEST = 30


def cannot_be_shipped(steps: Iterable[tuple[str, Any, Any]], error: Exception) -> PlanError:
    """The error to raise; `steps` are (name, definition, the user's function)."""
    for step, definition, function in steps:
        failure = _failure(definition)
        if failure is None:
            continue
        way, value = _innermost(definition)
        described = _described(way)
        where = f"function: {function_location(function)}\n" if function is not None else ""
        return PlanError(
            f"step {step!r} cannot be sent to workers: {described[-1]} cannot be pickled",
            detail=f"{where}found: {', '.join(described)}\nvalue: {_shown(value)}\nerror: {_short(failure)}",
            hint="make it in the worker instead: in open(self, context) of a function class, or inside the function; send plain "
            "data that it can be made from, such as a path or an address",
        )
    return PlanError(f"the job cannot be sent to workers: {_short(error)}", hint="functions, sources and sinks must be picklable")


def cannot_be_sent(step: str, records: list[Any], error: Exception) -> UserCodeError:
    """The error for a record that cannot go to another partition."""
    bad = next((record for record in records if _failure(record) is not None), None)
    way, value = _innermost(bad)
    part = f"\nin it: {', '.join(_described(way))}: {_shown(value)}" if way else ""
    return UserCodeError(
        f"step {step!r}: a record that it emits cannot be sent to another partition: {_short(error)}",
        detail=f"record: {_shown(bad)}{part}",
        hint="records that cross a key_by, rebalance or broadcast are pickled: emit plain data, not locks, files, connections or "
        "generators",
    )


Way = list[tuple[str, Any]]
"""What each part is called, and the part."""


def _failure(value: Any) -> Exception | None:
    try:
        job_pickle.dumps(value)
    except Exception as error:
        return error
    return None


def _innermost(value: Any) -> tuple[Way, Any]:
    """The way to the part that makes the whole fail."""
    way: Way = []
    seen: set[int] = set()
    for _ in range(DEEPEST):
        seen.add(id(value))
        for name, part in _parts(value):
            if id(part) not in seen and _failure(part) is not None:
                way.append((name, part))
                value = part
                break
        else:
            break
    return way, value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What pickling an object takes along, by name."""
    if isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, types.MethodType):
        yield f"the object that {value.__func__.__qualname__} is a method of", value.__self__
        yield f"the method {value.__func__.__qualname__}", value.__func__
    elif isinstance(value, functools.partial):
        yield "the function of a partial", value.func
        yield from ((f"argument {number} of a partial", part) for number, part in enumerate(value.args))
        yield from ((f"argument {name!r} of a partial", part) for name, part in value.keywords.items())
    elif isinstance(value, dict):
        yield from ((f"the item {key!r:.60}", part) for key, part in value.items())
        yield from ((f"the key {key!r:.60}", key) for key in value)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"item {number}", part) for number, part in enumerate(value))
    elif isinstance(value, type):
        yield from ((f"the class attribute {value.__qualname__}.{name}", part) for name, part in vars(value).items())
    else:
        yield from _of_instance(value)


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    shown = function_location(function)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f"the variable {name!r} that {shown} uses from around it", cell.cell_contents
        except ValueError:  # not set yet
            continue
    for name, default in _defaults(function):
        yield f"the default of {name!r} of {shown}", default
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield f"the global variable {name!r} that {shown} uses", function.__globals__[name]
    yield from ((f"the attribute {name!r} of {shown}", part) for name, part in vars(function).items())


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for parameter in inspect.signature(function, follow_wrapped=False).parameters.values():
        if parameter.default is not inspect.Parameter.empty:
            yield parameter.name, parameter.default


def _names(code: types.CodeType) -> set[str]:
    """The names that a function, or one inside it, looks up."""
    found = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= _names(inner)
    return found


def _of_instance(value: Any) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    names = {field.name: None for field in fields(value)} if is_dataclass(value) else {}
    names.update(dict.fromkeys(getattr(value, "__dict__", ())))
    names.update(dict.fromkeys(name for cls in kind.__mro__ for name in _slots(cls)))
    for name in names:
        try:
            part = getattr(value, name)
        except Exception:  # a slot that is not set, or a property with an opinion
            continue
        own = kind.__module__.partition(".")[0] != "penstock"
        yield (f"the field {kind.__qualname__}.{name}" if own else name), part
    yield f"the class {kind.__qualname__}", kind


def _slots(cls: type) -> tuple[str, ...]:
    slots: Any = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _described(way: Way) -> list[str]:
    """The way, without the engine's own fields on it."""
    named = [name for name, _ in way if " " in name]
    return named or [name for name, _ in way[-1:]] or ["it"]


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.200}, of type {type(value).__module__}.{type(value).__qualname__}"
    except Exception:
        return f"of type {type(value).__module__}.{type(value).__qualname__}"


def _short(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first:.300}"
