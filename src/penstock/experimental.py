"""What may change in any release, without the release of warning that everything else public gets.

It is marked where it is defined; `docs/index.md` and the golden file of the public API list what is.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

T = TypeVar("T", bound=Any)


def experimental(thing: T) -> T:
    """Mark a class, a function or a method."""
    thing.__experimental__ = True
    thing.__doc__ = f"{inspect.cleandoc(thing.__doc__ or '')}\n\nExperimental: it may change in any release."
    return thing
