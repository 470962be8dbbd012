"""Random types, values of them, edits of them, and what a value of one is when it is read as another: a naive reference."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
from hypothesis import strategies as st

SCALARS = ("int", "float", "str", "bool", "bytes")
FORMS = ("dataclass", "struct", "closed", "omit", "typed-dict", "named-tuple", "array")
ARRAYS = ("named-tuple", "array")
NAMES = ("a", "b", "c", "d")
MISSING = "…missing…"


@dataclass(frozen=True)
class T:
    """A type: what it is, and what it is made of. Of records: name → (type, default number or None)."""

    kind: str
    parts: tuple[T, ...] = ()
    form: str = ""
    fields: tuple[tuple[str, T, int | None], ...] = ()
    values: tuple[Any, ...] = ()


def scalars() -> st.SearchStrategy[T]:
    return st.sampled_from(SCALARS).map(T)


def fields_of(types: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[tuple[str, T, int | None], ...]]:
    return st.lists(
        st.tuples(st.sampled_from(NAMES), types, st.sampled_from([None, None, 0, 1])),
        min_size=1,
        max_size=3,
        unique_by=lambda f: f[0],
    ).map(tuple)


def record(form: str, fields: tuple[tuple[str, T, int | None], ...]) -> T:
    if form in ARRAYS or form == "dataclass":  # those without a default come first
        fields = tuple(sorted(fields, key=lambda f: f[2] is not None))
    return T("record", form=form, fields=fields)


def optional(part: T) -> T:
    return part if part.kind in ("optional", "union") else T("optional", (part,))


def types() -> st.SearchStrategy[T]:
    flat = st.one_of(
        scalars(),
        st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, unique=True).map(lambda v: T("enum", values=tuple(v))),
        st.lists(st.sampled_from([1, 2, 3]), min_size=1, unique=True).map(lambda v: T("enum", values=tuple(v))),
        st.lists(st.sampled_from(["x", "y", 1, 2]), min_size=1, unique=True).map(lambda v: T("literal", values=tuple(v))),
        st.lists(scalars(), min_size=2, max_size=3, unique=True).map(lambda parts: T("union", tuple(parts))),
        scalars().map(lambda part: T("set", (part,))),
    )
    return st.recursive(
        flat,
        lambda inner: st.one_of(
            inner.map(lambda part: T("list", (part,))),
            inner.map(optional),
            st.tuples(st.sampled_from(["int", "str"]).map(T), inner).map(lambda parts: T("dict", parts)),
            st.lists(inner, min_size=1, max_size=2).map(lambda parts: T("tuple", tuple(parts))),
            st.builds(record, st.sampled_from(FORMS), fields_of(inner)),
        ),
        max_leaves=3,
    )


def records() -> st.SearchStrategy[T]:
    """Records of simple fields mostly: there is most to be done to them."""
    simple = st.one_of(scalars(), scalars().map(optional), types())
    return st.builds(record, st.sampled_from(FORMS), fields_of(simple))


# --- as Python types -------------------------------------------------------------------------------------------------------


def built(t: T) -> Any:
    """The type itself."""
    return _built(t, {})


def _built(t: T, made: dict[T, Any]) -> Any:
    plain: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool, "bytes": bytes}
    if t.kind in plain:
        return plain[t.kind]
    parts: list[Any] = [_built(part, made) for part in t.parts]
    if t.kind == "list":
        return list[parts[0]]  # type: ignore[valid-type]
    if t.kind == "set":
        return set[parts[0]]  # type: ignore[valid-type]
    if t.kind == "dict":
        return dict[parts[0], parts[1]]  # type: ignore[valid-type]
    if t.kind == "tuple":
        return tuple[tuple(parts)]  # type: ignore[misc]
    if t.kind == "optional":
        return parts[0] | None
    if t.kind == "union":
        union = parts[0]
        for part in parts[1:]:
            union = union | part
        return union
    if t.kind == "enum":
        return made.setdefault(t, enum.Enum("E", {f"m{value}": value for value in t.values}))
    if t.kind == "literal":
        return Literal[t.values]
    return made.setdefault(t, _record(t, made))


def _record(t: T, made: dict[T, Any]) -> Any:
    fields = [(name, _built(part, made), default) for name, part, default in t.fields]
    factories = {name: _factory(part, default, made) for name, part, default in t.fields if default is not None}
    if t.form == "typed-dict":
        return TypedDict("R", {n: p if d is None else NotRequired[p] for n, p, d in fields})  # type: ignore[operator]
    if t.form == "named-tuple":
        made_type = NamedTuple("R", [(n, p) for n, p, _ in fields])  # type: ignore[misc]
        made_type.__new__.__defaults__ = tuple(factories[n]() for n, _, d in fields if d is not None)
        made_type._field_defaults = {n: factories[n]() for n, _, d in fields if d is not None}
        return made_type
    if t.form == "dataclass":
        return dataclasses.make_dataclass(
            "R",
            [(n, p) if d is None else (n, p, dataclasses.field(default_factory=factories[n])) for n, p, d in fields],
        )
    given: list[Any] = []
    for name, part, default in fields:
        if default is None:
            given.append((name, part))
        else:
            value = factories[name]()
            shared = not isinstance(value, list | set | dict) and not dataclasses.is_dataclass(value)
            given.append((name, part, value if shared else msgspec.field(default_factory=factories[name])))
    return msgspec.defstruct(
        "R",
        given,
        array_like=t.form == "array",
        kw_only=t.form != "array",
        omit_defaults=t.form == "omit",
        forbid_unknown_fields=t.form == "closed",
    )


def _factory(part: T, number: int, made: dict[T, Any]) -> Callable[[], Any]:
    return lambda: _instance(default_of(part, number), part, made)


# --- values: plain ones, in which records are dicts and enums their values ---------------------------------------------------


def default_of(t: T, number: int) -> Any:
    """One of two values of a type."""
    first = {"int": number, "float": number + 0.5, "str": f"s{number}", "bool": bool(number), "bytes": b"%d" % number}
    if t.kind in first:
        return first[t.kind]
    if t.kind in ("enum", "literal"):
        return t.values[-number]
    if t.kind == "optional":
        return None if number == 0 else default_of(t.parts[0], number)
    if t.kind == "union":
        return default_of(t.parts[number], number)
    if t.kind == "record":
        return {name: default_of(part, number) for name, part, _ in t.fields}
    if t.kind == "tuple":
        return [default_of(part, number) for part in t.parts]
    empty: dict[str, Any] = {"list": [], "set": [], "dict": {}}
    if number == 0:
        return empty[t.kind]
    if t.kind == "dict":
        return {default_of(t.parts[0], 1): default_of(t.parts[1], 1)}
    return [default_of(t.parts[0], 1)]


def values(t: T) -> st.SearchStrategy[Any]:
    scalar: dict[str, st.SearchStrategy[Any]] = {
        "int": st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**64 - 1)),
        "float": st.floats(allow_nan=False),
        "str": st.text(max_size=3),
        "bool": st.booleans(),
        "bytes": st.binary(max_size=3),
    }
    if t.kind in scalar:
        return scalar[t.kind]
    if t.kind in ("enum", "literal"):
        return st.sampled_from(t.values)
    if t.kind == "optional":
        return st.one_of(st.none(), values(t.parts[0]))
    if t.kind == "union":
        return st.one_of([values(part) for part in t.parts])
    if t.kind == "dict":
        return st.dictionaries(values(t.parts[0]), values(t.parts[1]), max_size=2)
    if t.kind == "tuple":
        return st.tuples(*[values(part) for part in t.parts]).map(list)
    if t.kind == "record":
        each = {}
        for name, part, default in t.fields:
            each[name] = values(part) if default is None else st.one_of(values(part), st.just(default_of(part, default)))
            if t.form == "typed-dict" and default is not None:
                each[name] = st.one_of(values(part), st.just(MISSING))
        return st.fixed_dictionaries(each).map(lambda v: {name: value for name, value in v.items() if value is not MISSING})
    return st.lists(values(t.parts[0]), max_size=2, unique_by=repr if t.kind == "set" else None)


def instance(plain: Any, t: T, tp: Any) -> Any:
    """The value of the Python type."""
    return _instance(plain, t, None, tp)


def _instance(plain: Any, t: T, made: dict[T, Any] | None, tp: Any = None) -> Any:
    if tp is None:
        assert made is not None
        tp = _built(t, made)
    return msgspec.convert(_wire(plain, t), tp, strict=True)


def _wire(plain: Any, t: T) -> Any:
    """As `msgspec.convert` takes it."""
    if t.kind == "record":
        if t.form in ARRAYS:
            return [_wire(plain[name], part) for name, part, _ in t.fields]
        return {name: _wire(plain[name], part) for name, part, _ in t.fields if name in plain}
    if t.kind == "optional":
        return None if plain is None else _wire(plain, t.parts[0])
    if t.kind in ("list", "set"):
        return [_wire(item, t.parts[0]) for item in plain]
    if t.kind == "tuple":
        return [_wire(item, part) for item, part in zip(plain, t.parts, strict=True)]
    if t.kind == "dict":
        return {key: _wire(item, t.parts[1]) for key, item in plain.items()}
    return plain


def plainly(value: Any, t: T) -> Any:
    """A value of the Python type, as a plain one."""
    if t.kind == "enum":
        return value.value
    if t.kind == "optional":
        return None if value is None else plainly(value, t.parts[0])
    if t.kind == "list":
        return [plainly(item, t.parts[0]) for item in value]
    if t.kind == "set":
        return sorted(value, key=repr)
    if t.kind == "tuple":
        return [plainly(item, part) for item, part in zip(value, t.parts, strict=True)]
    if t.kind == "dict":
        return {key: plainly(item, t.parts[1]) for key, item in value.items()}
    if t.kind == "record":
        if t.form == "typed-dict":
            return {name: plainly(value[name], part) for name, part, _ in t.fields if name in value}
        return {name: plainly(getattr(value, name), part) for name, part, _ in t.fields}
    return value


def read_as(plain: Any, old: T, new: T) -> Any:
    """What a value of the old type is as one of the new type."""
    if plain is None:
        return None
    if old.kind == "optional":
        return read_as(plain, old.parts[0], new)
    if new.kind == "optional":
        return read_as(plain, old, new.parts[0])
    takes = [part.kind for part in new.parts] if new.kind == "union" else [new.kind]
    if type(plain) is int and "float" in takes and "int" not in takes:
        return float(plain)
    if new.kind == "set":
        return sorted(plain, key=repr)
    if new.kind in ("list", "tuple") and old.kind == new.kind:
        news = new.parts * len(plain) if new.kind == "list" else new.parts
        olds = old.parts * len(plain) if old.kind == "list" else old.parts
        return [read_as(item, a, b) for item, a, b in zip(plain, olds, news, strict=True)]
    if new.kind == "dict":
        return {key: read_as(item, old.parts[1], new.parts[1]) for key, item in plain.items()}
    if new.kind == "record":
        was = {name: part for name, part, _ in old.fields}
        out = {}
        for name, part, default in new.fields:
            if name in plain:
                out[name] = read_as(plain[name], was[name], part)
            elif new.form != "typed-dict":
                assert default is not None, f"no value for {name}"
                out[name] = default_of(part, default)
        return out
    return plain


# --- edits -------------------------------------------------------------------------------------------------------------------


@st.composite
def edited(draw: st.DrawFn, t: T) -> T:
    """The type after an edit, somewhere in it: mild or not."""
    places = ["here"]
    if t.parts or t.fields:
        places += ["inside", "inside"]
    if draw(st.sampled_from(places)) == "inside":
        if t.fields:
            number = draw(st.integers(0, len(t.fields) - 1))
            name, part, default = t.fields[number]
            changed = (name, draw(edited(part)), default)
            return record(t.form, (*t.fields[:number], changed, *t.fields[number + 1 :]))
        number = draw(st.integers(0, len(t.parts) - 1))
        if t.kind in ("union", "set") or (t.kind == "dict" and number == 0):
            return replace(t, parts=(*t.parts[:number], draw(scalars()), *t.parts[number + 1 :])) if t.kind != "union" else t
        part = draw(edited(t.parts[number]))
        if t.kind == "optional" and part.kind in ("optional", "union"):
            return part
        return replace(t, parts=(*t.parts[:number], part, *t.parts[number + 1 :]))
    choices = ["optional", "other"]
    if t.kind in SCALARS:
        choices += ["float", "scalar", "scalar"]
    if t.kind == "record":
        choices += ["add", "add default", "remove", "default", "form", "reorder"] * 2
    if t.kind in ("enum", "literal"):
        choices += ["more", "fewer"] * 2
    if t.kind == "optional":
        choices += ["unwrap"]
    choice = draw(st.sampled_from(choices))
    if choice == "optional":
        return optional(t)
    if choice == "float":
        return T("float")
    if choice == "scalar":
        return draw(scalars())
    if choice == "unwrap":
        return t.parts[0]
    if choice == "more":
        return replace(t, values=(*t.values, "new" if isinstance(t.values[0], str) else 9))
    if choice == "fewer" and len(t.values) > 1:
        return replace(t, values=t.values[1:])
    if choice in ("add", "add default") and len(t.fields) < len(NAMES):
        name = draw(st.sampled_from([name for name in NAMES if name not in {f[0] for f in t.fields}]))
        default = draw(st.sampled_from([0, 1])) if choice == "add default" else None
        return record(t.form, (*t.fields, (name, draw(scalars()), default)))
    if choice == "remove" and len(t.fields) > 1:
        number = draw(st.integers(0, len(t.fields) - 1))
        return record(t.form, (*t.fields[:number], *t.fields[number + 1 :]))
    if choice == "default":
        number = draw(st.integers(0, len(t.fields) - 1))
        name, part, _ = t.fields[number]
        return record(t.form, (*t.fields[:number], (name, part, draw(st.sampled_from([None, 0, 1]))), *t.fields[number + 1 :]))
    if choice == "form":
        return record(draw(st.sampled_from(FORMS)), t.fields)
    if choice == "reorder":
        return record(t.form, t.fields[::-1])
    return draw(types())


@st.composite
def evolved(draw: st.DrawFn, t: T) -> T:
    """The type after edits that stored values survive."""
    if t.kind == "int" and draw(st.booleans()):
        return T("float")
    if t.kind in ("enum", "literal") and draw(st.booleans()):
        return replace(t, values=(*t.values, "new" if isinstance(t.values[0], str) else 9))
    if t.kind in ("list", "tuple", "optional"):
        parts = tuple(draw(evolved(part)) for part in t.parts)
        return parts[0] if t.kind == "optional" and parts[0].kind in ("optional", "union") else replace(t, parts=parts)
    if t.kind == "dict":
        return replace(t, parts=(t.parts[0], draw(evolved(t.parts[1]))))
    if t.kind == "record" and t.form not in ("omit", "typed-dict"):
        fields = [(name, draw(evolved(part)), default) for name, part, default in t.fields]
        free = [name for name in NAMES if name not in {f[0] for f in fields}]
        if draw(st.booleans()) and free:
            fields.append((free[0], draw(scalars()), 1))
        if t.form not in (*ARRAYS, "closed") and len(fields) > 1 and draw(st.booleans()):
            del fields[draw(st.integers(0, len(fields) - 1))]
        return replace(t, fields=tuple(fields)) if t.form in ARRAYS else record(t.form, tuple(fields))
    return optional(t) if draw(st.booleans()) else t
