"""What values of a schema look like in Arrow, and how they are got there fast.

A *conversion* is made from a schema (see `penstock.state.encoding.schemas`), without the user's classes:

    int, float, str, bytes, bool, date, time, timedelta    themselves; integers have 64 bits
    datetime                                               an instant (UTC); without a zone if a sample says so
    decimal, uuid                                          text
    enum, literal                                          their values, if all are integers or all are texts
    record, tuple                                          a struct; the parts of a tuple are _1, _2, ...
    list, set, tuple_of                                    a list
    dict                                                   a map
    Optional                                               may be null
    any, other unions, custom codecs, recursive records    JSON text (see `json_values`)

Laws:
- Values are decoded by one msgspec decoder, all at once; what a column cannot hold raises one of `MISFITS`, and is never changed
  to fit.
- `from_arrow(to_arrow(values))` are values that are encoded as the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from math import nan
from operator import attrgetter
from typing import Annotated, Any, Union
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Meta, UnsetType

from penstock.errors import StateError
from penstock.state.encoding.json_values import from_text, to_text
from penstock.state.encoding.keys import canonical_decimal

MISFITS = (msgspec.MsgspecError, pa.ArrowException, ValueError, TypeError, OverflowError)
"""What is raised for values that a column cannot hold."""

EXACT = 2.0**53
"""Floats below it that are integers are exactly these."""

JSON_METADATA = {b"penstock": b"json"}
"""On fields that hold JSON text."""

_NONE = b"\xc0"


class Conversion:
    """`annotation`: what msgspec decodes to; `arrow`: the type of the column."""

    annotation: Any
    arrow: pa.DataType
    is_scalar = False
    is_json = False
    nullable = False

    def to_arrow(self, values: list[Any]) -> pa.Array:
        raise NotImplementedError

    def from_arrow(self, array: pa.Array) -> list[Any]:
        """Values to be encoded by msgspec."""
        raise NotImplementedError

    def field(self, name: str) -> pa.Field:
        return pa.field(name, self.arrow, metadata=JSON_METADATA if self.is_json else None)


class Scalar(Conversion):
    """One value that Arrow knows. `check`: for what is written, brings it into the form in which it is kept."""

    is_scalar = True

    def __init__(self, annotation: Any, arrow: pa.DataType, check: Callable[[Any], Any] | None = None) -> None:
        self.annotation = annotation
        self.arrow = arrow
        self._check = check

    def to_arrow(self, values: list[Any]) -> pa.Array:
        return pa.array(values, self.arrow)

    def from_arrow(self, array: pa.Array) -> list[Any]:
        values: list[Any] = _present(array, self.arrow).to_pylist()
        return values if self._check is None else [self._check(value) for value in values]


class Float(Scalar):
    """A float. `null_is_nan`: what was written as NaN may come back as null."""

    def __init__(self, *, null_is_nan: bool) -> None:
        super().__init__(float, pa.float64())
        self._null_is_nan = null_is_nan

    def from_arrow(self, array: pa.Array) -> list[Any]:
        return super().from_arrow(array.cast(self.arrow).fill_null(nan) if self._null_is_nan and array.null_count else array)


class Json(Conversion):
    """Any value, as JSON text; None is null."""

    annotation = msgspec.Raw
    arrow = pa.string()
    is_json = True
    nullable = True

    def to_arrow(self, values: list[Any]) -> pa.Array:
        return pa.array([None if (data := bytes(value)) == _NONE else to_text(data) for value in values], self.arrow)

    def from_arrow(self, array: pa.Array) -> list[Any]:
        texts = array.cast(self.arrow).to_pylist()
        return [msgspec.Raw(_NONE if text is None else from_text(text)) for text in texts]


class Nullable(Conversion):
    """Optional."""

    nullable = True

    def __init__(self, inner: Conversion) -> None:
        self.inner = inner
        self.annotation = Union[inner.annotation, None]  # noqa: UP007 - of annotations made here
        self.arrow = inner.arrow
        self.is_scalar = inner.is_scalar

    def to_arrow(self, values: list[Any]) -> pa.Array:
        return self.inner.to_arrow(values) if self.inner.is_scalar else _spread(self.inner, values, None)

    def from_arrow(self, array: pa.Array) -> list[Any]:
        return _gathered(self.inner, array, None)


class Record(Conversion):
    """A dataclass, struct, NamedTuple or tuple. A field that may be missing, and is, is null."""

    def __init__(
        self, name: str, fields: list[tuple[str, Conversion, bool]], *, array: bool, tag: Any = None, exact: bool = False
    ):
        self._name = name
        self._fields = fields
        self._array = array
        members: list[Any] = []
        for number, (_, conversion, required) in enumerate(fields):
            members.append(
                (f"f{number}", conversion.annotation)
                if required
                else (f"f{number}", Union[conversion.annotation, UnsetType], UNSET)  # noqa: UP007
            )
        self._struct: Any = msgspec.defstruct(
            "Record",
            members,
            rename={f"f{number}": field for number, (field, _, _) in enumerate(fields)},
            array_like=array,
            tag_field=None if tag is None else tag[0],
            tag=None if tag is None else tag[1],
            forbid_unknown_fields=exact,
            kw_only=True,
            frozen=True,
            gc=False,
        )
        self._getters = [attrgetter(f"f{number}") for number in range(len(fields))]
        self.annotation = self._struct
        self.arrow = pa.struct([conversion.field(field) for field, conversion, _ in fields])

    def to_arrow(self, values: list[Any]) -> pa.Array:
        columns = []
        for (_, conversion, required), getter in zip(self._fields, self._getters, strict=True):
            column = list(map(getter, values))
            if required or UNSET not in column:
                columns.append(conversion.to_arrow(column))
            elif conversion.nullable or self._array:
                raise ValueError("a field is missing, and null means another thing")
            else:
                columns.append(_spread(conversion, column, UNSET))
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow))

    def from_arrow(self, array: pa.Array) -> list[Any]:
        if not pa.types.is_struct(array.type):
            raise StateError(f"a column of {array.type} was given for records of {self._name}", hint=f"needed: {self.arrow}")
        given = {field.name: column for field, column in zip(array.type, _present(array).flatten(), strict=True)}
        known = {field for field, _, _ in self._fields}
        if unknown := sorted(given.keys() - known):
            raise StateError(f"{self._name} has no field {', '.join(unknown)}", hint=f"it has {', '.join(sorted(known))}")
        columns = []
        for field, conversion, required in self._fields:
            column = given.get(field)
            if column is None and (required or self._array):
                raise StateError(f"the field {field} of {self._name} is missing", hint=f"needed: {self.arrow}")
            try:
                if column is None:
                    columns.append([UNSET] * len(array))
                elif required or conversion.nullable:
                    columns.append(conversion.from_arrow(column))
                else:
                    columns.append(_gathered(conversion, column, UNSET))
            except MISFITS as error:
                raise StateError(f"the field {field} of {self._name} cannot be {conversion.arrow}", detail=str(error)) from error
        names = [f"f{number}" for number in range(len(columns))]
        make = self._struct
        return [make(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


class ListOf(Conversion):
    """Items in order; a set's too. `make`: of the items, for what is written."""

    def __init__(self, item: Conversion, make: Callable[[list[Any]], Any] | None = None) -> None:
        self._item = item
        self._make = make
        self.annotation = list.__class_getitem__(item.annotation)
        self.arrow = pa.list_(item.field("item"))

    def to_arrow(self, values: list[Any]) -> pa.Array:
        return pa.ListArray.from_arrays(_offsets(values), self._item.to_arrow(list(chain.from_iterable(values))), type=self.arrow)

    def from_arrow(self, array: pa.Array) -> list[Any]:
        array = _present(array)
        if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type)):
            raise StateError(f"a column of {array.type} was given for lists", hint=f"needed: {self.arrow}")
        found: list[Any] = _cut(self._item.from_arrow(array.flatten()), pc.list_value_length(array).to_pylist())
        return found if self._make is None else [self._make(items) for items in found]


class MapOf(Conversion):
    """Entries in order."""

    def __init__(self, key: Conversion, item: Conversion) -> None:
        self._key = key
        self._item = item
        self.annotation = dict.__class_getitem__((key.annotation, item.annotation))
        self.arrow = pa.map_(key.arrow, item.field("value"))

    def to_arrow(self, values: list[Any]) -> pa.Array:
        keys = self._key.to_arrow(list(chain.from_iterable(values)))
        items = self._item.to_arrow([item for value in values for item in value.values()])
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=self.arrow)

    def from_arrow(self, array: pa.Array) -> list[Any]:
        array = _present(array)
        if not pa.types.is_map(array.type):
            raise StateError(f"a column of {array.type} was given for dicts", hint=f"needed: {self.arrow}")
        entries = pa.ListArray.from_arrays(array.offsets, pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"]))
        flat = entries.flatten()
        pairs = list(zip(self._key.from_arrow(flat.field(0)), self._item.from_arrow(flat.field(1)), strict=True))
        return [dict(mine) for mine in _cut(pairs, entries.value_lengths().to_pylist())]


def _offsets(values: list[Any]) -> pa.Array:
    at = 0
    out = [0]
    for value in values:
        at += len(value)
        out.append(at)
    return pa.array(out, pa.int32())


def _cut(items: list[Any], lengths: list[int]) -> list[list[Any]]:
    out, at = [], 0
    for length in lengths:
        out.append(items[at : at + length])
        at += length
    return out


def _spread(conversion: Conversion, values: list[Any], missing: Any) -> pa.Array:
    """A column with null where a value is the missing one."""
    present = [value for value in values if value is not missing]
    if len(present) == len(values):
        return conversion.to_arrow(values)
    if not present:
        return pa.nulls(len(values), conversion.arrow)
    numbers = iter(range(len(present)))
    places = [None if value is missing else next(numbers) for value in values]
    return conversion.to_arrow(present).take(pa.array(places, pa.int32()))


def _gathered(conversion: Conversion, array: pa.Array, missing: Any) -> list[Any]:
    """The inverse of `_spread`."""
    if not array.null_count:
        return conversion.from_arrow(array)
    valid = array.is_valid()
    present = iter(conversion.from_arrow(array.filter(valid)))
    return [next(present) if there else missing for there in valid.to_pylist()]


def _present(array: pa.Array, arrow: pa.DataType | None = None) -> pa.Array:
    if array.null_count:
        raise StateError("a column has nulls, and its type has no None", hint="give every row a value, or leave the rows out")
    if arrow is None or array.type == arrow:
        return array
    if pa.types.is_integer(arrow) and pa.types.is_floating(array.type) and pc.any(pc.greater_equal(pc.abs(array), EXACT)).as_py():
        raise inexact()
    return array.cast(arrow)


def inexact() -> StateError:
    """For a float that may have been another integer."""
    return StateError("floats of 2**53 and more are not exact integers", hint="give integers (in pandas: the dtype Int64)")


# --- by schema ---------------------------------------------------------------------------------------------------------------


def conversion_of(schema: Any, *, naive: bool = False, of_keys: bool = False, null_is_nan: bool = False) -> Conversion:
    """The conversion for a schema. `naive`: datetimes have no time zone. `of_keys`: equal values are written alike.

    `null_is_nan`: a null for a float that cannot be None is NaN, which pandas does not tell from null.
    """

    def part(schema: Any) -> Conversion:
        return conversion_of(schema, naive=naive, of_keys=of_keys, null_is_nan=null_is_nan)

    if isinstance(schema, str):
        return Float(null_is_nan=null_is_nan) if schema == "float" else _builtin(schema, naive, of_keys)
    kind = next(iter(schema))
    given = schema[kind]
    if kind == "constrained":
        naive = not schema["by"].get("tz", not naive)
        return part(given)
    if kind in ("list", "set", "frozenset", "tuple_of"):
        return ListOf(part(given), frozenset if of_keys and kind in ("set", "frozenset") else None)
    if kind == "dict":
        key = part(given[0])
        return MapOf(key, part(given[1])) if key.is_scalar and not key.nullable else Json()
    if kind == "union":
        others = [one for one in given if one != "none"]
        if len(others) != 1 or len(others) == len(given):
            return Json()
        inner = part(others[0])
        return inner if inner.nullable else Nullable(inner)
    if kind == "tuple" and given:
        parts = [(f"_{number}", part(one), True) for number, one in enumerate(given, 1)]
        return Record("a tuple", parts, array=True, exact=True)
    if kind == "record" and schema["fields"]:
        fields = [(f["name"], part(f["type"]), f["required"]) for f in schema["fields"]]
        return Record(given, fields, array=schema["form"] == "array", tag=schema.get("tag"))
    if kind == "enum":
        return _one_of(list(schema["values"].values()))
    if kind == "literal":
        return _one_of(given)
    if kind == "constrained":
        return part(given)
    if kind == "pickle":
        return Scalar(bytes, pa.binary())
    return Json()


def _builtin(name: str, naive: bool, of_keys: bool) -> Conversion:
    match name:
        case "bool":
            return Scalar(bool, pa.bool_())
        case "int":
            return Scalar(int, pa.int64())
        case "str":
            return Scalar(str, pa.string())
        case "bytes" | "bytearray":
            return Scalar(bytes, pa.binary())
        case "datetime":
            return Scalar(Annotated[datetime, Meta(tz=not naive)], pa.timestamp("us", None if naive else "UTC"))
        case "date":
            return Scalar(date, pa.date32())
        case "time":
            return Scalar(Annotated[time, Meta(tz=False)], pa.time64("us"))
        case "timedelta":
            return Scalar(timedelta, pa.duration("us"))
        case "uuid":
            return Scalar(str, pa.string(), lambda text: str(UUID(text)))
        case "decimal":
            return Scalar(str, pa.string(), lambda text: str(canonical_decimal(Decimal(text)) if of_keys else Decimal(text)))
    return Json()


def _one_of(values: list[Any]) -> Conversion:
    kinds = {type(value) for value in values}

    def check(value: Any) -> Any:
        if value not in values:
            raise StateError(f"{value!r} is not one of the values", hint=f"choose one of {', '.join(map(repr, values))}")
        return value

    if kinds == {int}:
        return Scalar(int, pa.int64(), check)
    if kinds == {str}:
        return Scalar(str, pa.string(), check)
    return Json()
