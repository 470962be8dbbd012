"""A job as bytes, for the workers.

Functions and classes of the user's main program go by value. Three things need care:
- msgspec leaves a cache in the classes it has looked at, and a class cannot go by value with that in it.
- The sentinel for "a dataclass field without a default" is known by identity: a copy of it would be taken for a default.
- In a worker such a class exists only through the job. It is made findable under `__main__`, so that plain pickle can pass its
  instances from one worker to another.
"""

from __future__ import annotations

import copyreg
import dataclasses
import io
import sys
from typing import Any

import cloudpickle

copyreg.pickle(type(dataclasses.MISSING), lambda missing: "MISSING")

_MSGSPEC_CACHE = "__msgspec_cache__"


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and _MSGSPEC_CACHE in vars(obj):
            delattr(obj, _MSGSPEC_CACHE)
        return super().reducer_override(obj)


def dumps(obj: Any) -> bytes:
    """An object and the user's code that it needs, by value where a worker could not import it."""
    with io.BytesIO() as file:
        _Pickler(file).dump(obj)
        return file.getvalue()


def loads(data: bytes) -> Any:
    """The inverse of `dumps`, in a worker."""
    found = cloudpickle.loads(data)
    tracked = getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {})
    main = sys.modules["__main__"]
    for cls in list(tracked):
        if cls.__module__ == "__main__" and "." not in cls.__qualname__:
            setattr(main, cls.__qualname__, cls)
    return found
