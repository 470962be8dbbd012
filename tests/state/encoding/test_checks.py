"""A value that is written is read back equal, or is refused."""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.errors import StateError, StateTypeError
from penstock.state.encoding.codecs import PICKLE, codec_for, register_codec
from penstock.state.encoding.misfits import same
from penstock.state.overlay.handles import UNTYPED
from tests.state.random_types import built, edited, instance, records, types, values

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
NAN = float("nan")


class Colour(enum.Enum):
    RED = "r"


class Size(enum.IntEnum):
    BIG = 1


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclass
class Item:
    name: str
    price: float = 0.0


@dataclass
class Cart:
    items: list[Item]
    at: datetime | None = None
    tags: dict[str, int] = field(default_factory=dict)


@dataclass
class Express(Cart):
    pass


@dataclass(eq=False)
class Bare:
    n: float


@dataclass
class Growing:
    n: int

    def __post_init__(self) -> None:
        self.n += 1


@dataclass
class Rounding:
    n: float

    def __post_init__(self) -> None:
        self.n = round(self.n, 2)


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Row(TypedDict):
    a: int
    b: NotRequired[str]


class Total(msgspec.Struct, frozen=True):
    amount: Decimal
    n: int | msgspec.UnsetType = msgspec.UNSET


class Tree(msgspec.Struct):
    value: int
    below: list[Tree] = []


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.cents == other.cents

    def __hash__(self) -> int:
        return self.cents


class Coins(Money):
    pass


register_codec(Money, encode=lambda m: m.cents, decode=Money, name="checked money", mutable=False)

FITS: list[tuple[Any, Any]] = [
    (int, 2**64 - 1),
    (int, np.int64(3)),
    (int, Size.BIG),
    (float, 1),
    (float, 2**53),
    (float, NAN),
    (float, np.float64("nan")),
    (float, np.float32(0.1)),
    (bool, np.bool_(True)),
    (str, np.str_("a")),
    (bytes, bytearray(b"a")),
    (Size, 1),
    (Decimal, Decimal("NaN")),
    (Decimal, 3),
    (time, time(12, tzinfo=UTC)),
    (datetime, datetime(2026, 1, 1)),  # noqa: DTZ001
    (timedelta, timedelta.min),
    (UUID, UUID(int=1)),
    (Bits, Bits.A | Bits.B),
    (list[float], [1, NAN, 2.5]),
    (dict[float, int], {1: 2}),
    (dict[str, int], Counter("aab")),
    (set[int], frozenset({1})),
    (tuple[()], ()),
    (tuple[int, float], Point(1, 2.0)),
    (Point, (1, 2.0)),
    (Row, OrderedDict(a=1)),
    (Cart, Cart([Item("a", 1)], NOW, {"x": 1})),
    (Cart | None, None),
    (Bare, Bare(NAN)),
    (Rounding, Rounding(1.0)),
    (Tree, Tree(1, [Tree(2), Tree(3, [])])),
    (Total, Total(Decimal(1))),
    (Total, Total(Decimal(1), 3)),
    (Money, Money(3)),
    (list[Any], [1, {"a": [None, b"x"], 1: NOW}]),
    (Literal["a", 1], 1),
    (Annotated[int, msgspec.Meta(ge=0)], 3),
    (Annotated[list[int], msgspec.Meta(max_length=2)], [1, 2]),
]
REFUSED: list[tuple[Any, Any, str, str]] = [
    (int, "text", "", "int"),
    (int, True, "", "int"),
    (int, 3.0, "", "int"),
    (int, np.float64(3), "", "int"),
    (int, None, "", "int"),
    (int, 2**70, "", "int"),
    (bool, 1, "", "bool"),
    (float, 2**53 + 1, "", "float"),
    (float, "1.5", "", "float"),
    (str, b"a", "", "str"),
    (str, "\ud800", "", "str"),
    (bytes, "a", "", "bytes"),
    (datetime, date(2026, 1, 1), "", "datetime"),
    (datetime, "2026-01-01T00:00:00", "", "datetime"),
    (date, NOW, "", "date"),
    (time, time(12, tzinfo=timezone(timedelta(seconds=3607))), "", "time"),
    (timedelta, 3, "", "timedelta"),
    (Decimal, 0.1, "", "Decimal"),
    (Decimal, np.int64(3), "", "Decimal"),
    (UUID, str(UUID(int=1)), "", "UUID"),
    (Colour, "r", "", "Colour"),
    (Literal["a", "b"], "c", "", "Literal['a', 'b']"),
    (Literal[1], True, "", "Literal[1]"),
    (list[int], (1, 2), "", "list[int]"),
    (tuple[int, ...], [1], "", "tuple[int, ...]"),
    (tuple[int, float], (1,), "", "tuple[int, float]"),
    (tuple[int, float], (1, "x"), "[1]", "float"),
    (list[int], [1, 2, "x"], "[2]", "int"),
    (set[int], {"x"}, "{'x'}", "int"),
    (dict[str, int], {"a": 1, "b": "x"}, "['b']", "int"),
    (dict[str, int], {1: 1}, ".keys(): 1", "str"),
    (Cart, Cart([Item("a"), Item("b", "x")]), ".items[1].price", "float"),  # type: ignore[arg-type]
    (Cart, Cart([], at="now"), ".at", "datetime | None"),  # type: ignore[arg-type]
    (Cart | None, Cart([Item(1)]), ".items[0].name", "str"),  # type: ignore[arg-type]
    (Cart, Express([]), "", "Cart"),
    (Cart, {"items": []}, "", "Cart"),
    (Growing, Growing(1), "", "Growing"),
    (Point, Point("x"), ".x", "int"),  # type: ignore[arg-type]
    (Row, {"b": "x"}, "", "Row"),
    (Row, {"a": 1, "c": 2}, "", "Row"),
    (Row, {"a": "x"}, "['a']", "int"),
    (Tree, Tree(1, [Tree(2, [Tree("x")])]), ".below[0].below[0].value", "int"),  # type: ignore[arg-type]
    (Total, Total(1.1), ".amount", "Decimal"),  # type: ignore[arg-type]
    (Money, Coins(3), "", "Money"),
    (dict[str, Any], {"a": [1, (2, 3)]}, "['a'][1]", "Any"),
    (dict[str, Any], {"a": Decimal(1)}, "['a']", "Any"),
    (list[object], [{1}], "[0]", "Any"),
    (Annotated[int, msgspec.Meta(ge=0)], -1, "", "int (ge 0)"),
    (Annotated[list[int], msgspec.Meta(max_length=2)], [1, 2, 3], "", "list[int]"),
]


@pytest.mark.parametrize(("tp", "value"), FITS)
def test_what_fits_is_written_and_read_back_equal(tp: Any, value: Any) -> None:
    codec = codec_for(tp)
    assert same(value, codec.read(codec.write(value)))


@pytest.mark.parametrize(("tp", "value", "path", "expected"), REFUSED)
def test_what_would_not_be_read_back_is_refused(tp: Any, value: Any, path: str, expected: str) -> None:
    codec = codec_for(tp)
    with pytest.raises(StateError) as caught:
        codec.write(value)
    assert caught.value.hint
    found = codec.misfit(value)
    assert (found.path, found.expected) == (path, expected)
    if isinstance(caught.value, StateTypeError):
        assert expected in caught.value.what or "would not be read back" in caught.value.what
        assert path in caught.value.detail


@pytest.mark.parametrize(
    ("tp", "value", "hint"),
    [
        (int, np.float64(3), "write int(x)"),
        (int, 2**70, "fit 64 bits"),
        (tuple[int, str], (1,), "of the declared type"),
        (float, np.int64(2**60 + 1), "write float(x)"),
        (int, None, "clear()"),
        (list[int], (1,), "write list(x)"),
        (dict[str, Any], {"a": (1,)}, "declare its type"),
    ],
)
def test_hints(tp: Any, value: Any, hint: str) -> None:
    assert hint in codec_for(tp).misfit(value).hint()


@dataclass
class InitOnly:
    n: int
    scale: dataclasses.InitVar[int]

    def __post_init__(self, scale: int) -> None:
        self.n *= scale


@pytest.mark.parametrize("value", [Growing(1), InitOnly(1, 2), Bits.A | Bits.B, np.datetime64(1, "ns"), Money(3), 2**70])
def test_untyped_values_that_would_not_come_back_are_refused(value: Any) -> None:
    with pytest.raises((StateError, TypeError, OverflowError)):
        UNTYPED.encode(value)


@pytest.mark.parametrize(
    "value", [Rounding(1.0), Bits.A, Size.BIG, np.int64(3), Point(1), Tree(1, [Tree(2)]), {1: (2, {3})}, Bare(NAN), NOW]
)
def test_untyped_values_come_back(value: Any) -> None:
    assert same(value, UNTYPED.decode(UNTYPED.encode(value)))


def test_pickled_values_are_not_checked() -> None:
    assert PICKLE.read(PICKLE.write((1, {2}))) == (1, {2})


# --- any type, any value -----------------------------------------------------------------------------------------------------

JUNK: list[Any] = [
    *(None, True, 1, -(2**60), 2**53 + 1, 2**70, 1.5, 3.0, "x", "1", b"x", bytearray(b"x")),
    *([1], [], (1,), (), {1}, frozenset({"x"}), {"a": 1}, {}, {1: "x"}),
    *(np.int64(3), np.float64(1.5), np.float32(0.1), np.bool_(False), np.str_("x"), np.bytes_(b"x")),
    *(Decimal("1.5"), NOW, date(2026, 1, 1), timedelta(1), UUID(int=1), Colour.RED, Size.BIG, Item("a"), Point(1), object),
]


@st.composite
def corrupted(draw: st.DrawFn, value: Any) -> Any:
    """The value, with something else in a place of it."""
    places: list[Any] = []
    if isinstance(value, (list, dict)):
        places = list(range(len(value))) if isinstance(value, list) else list(value)
    elif isinstance(value, tuple):
        places = list(range(len(value)))
    elif dataclasses.is_dataclass(value):
        places = [one.name for one in dataclasses.fields(value)]
    elif isinstance(value, msgspec.Struct):
        places = list(value.__struct_fields__)
    if not places or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(JUNK))
    place = draw(st.sampled_from(places))
    if isinstance(value, (list, dict)):
        value[place] = draw(corrupted(value[place]))
    elif isinstance(value, tuple):
        items = [*value[:place], draw(corrupted(value[place])), *value[place + 1 :]]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    else:
        change = msgspec.structs.force_setattr if isinstance(value, msgspec.Struct) else setattr
        change(value, place, draw(corrupted(getattr(value, place))))
    return value


def check_the_law(tp: Any, value: Any) -> None:
    """`write` takes what `encode` and `decode` give back equal, and nothing else."""
    codec = codec_for(tp)
    try:
        encoded = codec.encode(value)
        reads_back = bool(codec.decode(encoded) == value)
    except Exception:
        encoded, reads_back = None, False
    try:
        codec.write(value)
        written = True
    except StateError:
        written = False
    assert written is reads_back
    if encoded is not None and codec.passes(value):
        assert reads_back, "the compiled check is not sound"
    if not written:
        assert codec.misfit(value).hint()


@given(st.data())
def test_written_is_what_reads_back_equal(data: st.DataObject) -> None:
    t = data.draw(st.one_of(types(), records()))
    try:
        tp = built(t)
        codec_for(tp)
    except (StateError, TypeError):  # a union of types that MessagePack cannot tell apart
        assume(False)
    of = data.draw(st.sampled_from(["itself", "itself", "itself", "near", "any"]))
    if of == "itself":
        value = instance(data.draw(values(t)), t, tp)
        if data.draw(st.integers(0, 3)):
            value = data.draw(corrupted(value))
    else:
        other = data.draw(edited(t) if of == "near" else types())
        try:
            value = instance(data.draw(values(other)), other, built(other))
        except TypeError:
            assume(False)
    check_the_law(tp, value)


OTHERS: list[Any] = [list[Decimal], dict[UUID, time], datetime | int, float | Decimal | None]
KNOWN = [*(tp for tp, _ in FITS), *(tp for tp, *_ in REFUSED), *OTHERS]
GIVEN = [*(value for _, value in FITS if "nan" not in repr(value).lower()), *(value for _, value, *_ in REFUSED)]


@given(st.sampled_from(KNOWN), st.one_of(st.sampled_from(JUNK), st.sampled_from(GIVEN)), st.data())
def test_the_same_of_other_types(tp: Any, value: Any, data: st.DataObject) -> None:
    check_the_law(tp, data.draw(corrupted(copy.deepcopy(value))) if data.draw(st.booleans()) else value)
