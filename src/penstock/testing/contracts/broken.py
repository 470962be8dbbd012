"""What a check raises."""

from __future__ import annotations

from typing import Any

_SHOWN = 500


class ContractBrokenError(AssertionError):
    """A connector does not do what its protocol says."""


def require(kept: bool, rule: str, detail: str = "") -> None:
    """The rule, or an error that names it."""
    if not kept:
        raise ContractBrokenError(f"{rule}\n  {detail}" if detail else rule)


def require_same(found: Any, expected: Any, rule: str) -> None:
    if found != expected:
        raise ContractBrokenError(f"{rule}\n  expected: {_short(expected)}\n  found:    {_short(found)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
