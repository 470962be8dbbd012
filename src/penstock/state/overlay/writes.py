"""Writes to state: what is checked when, and what is said of a value that does not fit.

Laws:
- Everything that is encoded is checked in full, before anything of the epoch is committed.
- A write is refused at once, and the state stays as it was, if the value is not of a class that the declared type asks for. In a
  step that sets bad records aside (`errors=`) every write is checked in full at once, so that the record that made it can be.
  Only what is changed in place afterwards is found at the end of the epoch.
- An immutable value that is read back as an equal one of another class (numpy's scalars, an int in a float state) is kept as that
  at once: what a function sees does not depend on where epochs are cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError, PlanError, StateError, StateTypeError
from penstock.functions import function_location
from penstock.state.encoding.checks import EXACT_FLOATS
from penstock.state.encoding.codecs import Codec
from penstock.state.encoding.misfits import Misfit, wrong_type
from penstock.state.overlay.keyed import Slot

_WHOLE = (int, float, str, bytes, bool)
"""Types of which nothing is left to check once the class is right."""


NO_KEY: object = ...
"""In place of a key of a map, where there is none."""


class _Nothing:
    """The outer class of no value: each one is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLabel:
    """A state, for messages. `tolerant`: its step sets aside records that it cannot process."""

    step: str
    state: str
    function: Any = None
    tolerant: bool = False

    def __str__(self) -> str:
        return f"state {self.state!r} of step {self.step!r}"


class Writes:
    """Checks what is written to one state. `key_of`: the key of a slot, for messages."""

    __slots__ = ("_check", "_codec", "_encode", "_key_of", "_label", "_outers", "_whole", "outer")

    def __init__(self, codec: Codec, label: StateLabel, key_of: Callable[[Slot], object]) -> None:
        self._codec = codec
        self._label = label
        self._key_of = key_of
        self._encode = codec.encode
        self._check = codec.check or (lambda value: True)
        self._whole: type = codec.tp if codec.tp in _WHOLE else _Nothing
        self._outers = frozenset(codec.outer or ())
        self.outer: type | None = codec.outer[0] if codec.outer else None
        """A value of exactly this class may be written without being looked at; None: any value."""
        if label.tolerant:
            self.outer = _Nothing

    def admit(self, value: Any, slot: Slot, sub: object = NO_KEY) -> Any:
        """The value to keep for one that is written, and is not of class `outer`. `sub`: its key in a map."""
        kind, codec = type(value), self._codec
        if not self._label.tolerant:
            if kind in self._outers:
                return value
            if kind is int and self.outer is float and -EXACT_FLOATS <= value <= EXACT_FLOATS:
                return float(value)
        try:
            data = codec.encode(value)
        except Exception as error:
            raise self.unencodable(error, value, slot, sub) from error
        if codec.check is None or (kind in self._outers and codec.passes(value)):
            return value
        back, found = codec.settle(value, data)
        if found is not None:
            raise self._refusal(found, value, slot, sub)
        return value if codec.mutable else back

    def encode(self, value: Any, slot: Slot, sub: object = NO_KEY) -> bytes:
        """The bytes of a value, checked in full."""
        data = None
        try:
            data = self._encode(value)
            if type(value) is self._whole or self._check(value):
                return data
        except Exception as error:
            if data is None:
                raise self.unencodable(error, value, slot, sub) from error
        self._settle(value, data, slot, sub)
        return data

    def verify(self, value: Any, data: bytes, slot: Slot) -> None:
        """Make sure that a value that was encoded will be read back as it is."""
        if not self._codec.passes(value):
            self._settle(value, data, slot, NO_KEY)

    def _settle(self, value: Any, data: bytes, slot: Slot, sub: object) -> None:
        _, found = self._codec.settle(value, data)
        if found is not None:
            note = "it was changed in place, so errors= of the step does not apply: write it with update()"
            raise self._refusal(found, value, slot, sub, note if self._label.tolerant else "")

    def unencodable(self, error: Exception, value: Any, slot: Slot, sub: object = NO_KEY) -> PenstockError:
        """The error for what encoding a value raised."""
        if self._codec.check is not None:
            note = str(error).partition("\n")[0]
            return self._refusal(self._codec.misfit(value, error=error), value, slot, sub, note)
        what = error.what if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        hint = error.hint if isinstance(error, PenstockError) else "integers must fit 64 bits, and text must be valid Unicode"
        return StateError(f"{self._label}: {what}", detail=f"{self._about(slot, sub)}\nvalue: {value!r:.300}", hint=hint)

    def bad_key(self, error: StateError, sub: object, slot: Slot) -> StateTypeError:
        """The error for what encoding a key of a map raised."""
        detail = f"{self._about(slot, sub)}\n{error.detail}"
        return StateTypeError(f"{self._label}: {error.what}", detail=detail, hint="write a key of the declared type")

    def _refusal(self, found: Misfit, value: Any, slot: Slot, sub: object, note: str = "") -> PenstockError:
        return wrong_type(found, value, where=str(self._label), detail=self._about(slot, sub), note=note)

    def _about(self, slot: Slot, sub: object) -> str:
        shown = f"key: {self._key_of(slot)!r:.200}" + ("" if sub is NO_KEY else f"\nmap key: {sub!r:.200}")
        function = self._label.function
        return shown if function is None else f"{shown}\nfunction: {function_location(function)}"


def check_default(state: Any, name: str, codec: Codec) -> None:
    """Refuse a default that is not of the declared type."""
    default = getattr(state, "default", None)
    if default is None:
        return
    try:
        codec.write(default)
    except StateError as error:
        raise PlanError(
            f"the default of state {name!r} is not of its declared type",
            detail=f"default: {default!r:.200}\n{error.what}",
            hint=error.hint,
        ) from None
