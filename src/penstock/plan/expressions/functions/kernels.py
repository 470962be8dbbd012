"""Arrow's functions as kernels, looked up once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.expressions.nodes import Options
from penstock.plan.expressions.registry import Kernel

Make = Callable[[Options, tuple[pa.DataType, ...]], Kernel]


def arrow(name: str, options: Any = None, cast: pa.DataType | None = None) -> Kernel:
    """A function of Arrow's; `cast`: the type that its result gets."""
    call = pc.get_function(name).call
    if cast is None:
        return lambda *arguments: call(arguments, options)
    return lambda *arguments: call(arguments, options).cast(cast)


def plain(name: str, cast: pa.DataType | None = None) -> Make:
    """A kernel that is a function of Arrow's without options."""
    return lambda options, types: arrow(name, cast=cast)


def numpy_kernel(compute: Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any]]) -> Kernel:
    """A function of two numpy arrays; null where one of them is. It sees ones for nulls."""

    def kernel(left: pa.Array, right: pa.Array) -> pa.Array:
        missing = None
        if left.null_count or right.null_count:
            missing = np.asarray(left.is_null()) | np.asarray(right.is_null())
            one = pa.scalar(1, left.type)
            left, right = (pc.if_else(pa.array(missing), one, side) for side in (left, right))
        with np.errstate(all="ignore"):
            found = compute(left.to_numpy(zero_copy_only=False), right.to_numpy(zero_copy_only=False))
        return pa.array(found, mask=missing)

    return kernel


def is_whole(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_whole_or_none(least: int) -> Callable[[Any], bool]:
    return lambda value: value is None or is_whole(least)(value)


def is_string(value: Any) -> bool:
    return isinstance(value, str)


def is_string_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)
