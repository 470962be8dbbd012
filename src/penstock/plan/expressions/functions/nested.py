"""Fields of structs and elements of lists. What is not there (an index beyond the list) is null."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import did_you_mean
from penstock.plan.expressions.functions.kernels import arrow, is_string
from penstock.plan.expressions.nodes import Options
from penstock.plan.expressions.registry import Function, Kernel, TypeProblemError, Types, Typing, register
from penstock.plan.expressions.types import is_list, is_null, type_text


def _field_rule(types: Types, options: Options) -> Typing:
    kind, name = types[0], str(options["name"])
    if kind is None:
        return Typing((None,), None)
    if is_null(kind):
        return Typing((None,), pa.null())
    if not pa.types.is_struct(kind):
        raise TypeProblemError(f"it takes structs (nested records), not {type_text(kind)}")
    names = [field.name for field in kind]
    if name not in names:
        hint = did_you_mean(name, names)
        raise TypeProblemError(f"there is no field {name!r}; the fields are {', '.join(names)}" + (f": {hint}" if hint else ""))
    return Typing((None,), kind.field(name).type)


def _field(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    if is_null(types[0]):
        return lambda value: value
    return arrow("struct_field", pc.StructFieldOptions([options["name"]]))


def _element_rule(types: Types, options: Options) -> Typing:
    kind = types[0]
    if kind is None:
        return Typing((None,), None)
    if is_null(kind):
        return Typing((None,), pa.null())
    if not is_list(kind):
        raise TypeProblemError(f"it takes lists, not {type_text(kind)}")
    return Typing((pa.large_list(kind.value_type),), kind.value_type)


def _element(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    index: Any = options["index"]
    if is_null(types[0]):
        return lambda lists: lists

    def kernel(lists: Any) -> pa.Array:
        offsets = lists.offsets.to_numpy(zero_copy_only=False)
        lengths = np.diff(offsets)
        missing = (lengths <= index) | (lengths < -index) | np.asarray(lists.is_null())
        at = (offsets[:-1] if index >= 0 else offsets[1:]) + index
        return lists.values.take(pa.array(np.where(missing, 0, at), mask=missing))

    return kernel


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


register(Function(name="field", least=1, most=1, rule=_field_rule, kernel=_field, options={"name": is_string}))
register(
    Function(name="element", least=1, most=1, rule=_element_rule, kernel=_element, options={"index": _is_index}, arrays=True)
)
