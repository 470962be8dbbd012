from __future__ import annotations

import enum
import pickle
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, Optional
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.state.encoding.codecs import CODEC_ERRORS, PICKLE, codec_for, encode_key, encode_keys, key_codec, register_codec


class Colour(enum.Enum):
    RED = "r"


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclass
class Visit:
    page: str
    seen: Optional[datetime] = None  # noqa: UP045 - the old spelling is supported too
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Node:
    value: int
    next: Node | None = None


class Total(msgspec.Struct, frozen=True):
    amount: Decimal
    at: date


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and self.cents == other.cents

    def __hash__(self) -> int:
        return self.cents


class Unknown:
    pass


@dataclass(frozen=True)
class Bill:
    items: tuple[Money, ...]


register_codec(Money, encode=lambda m: m.cents, decode=Money, name="money", mutable=False)
register_codec(Fraction, encode=lambda f: [f.numerator, f.denominator], decode=lambda p: Fraction(*p), name="fraction")

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("tp", "value", "mutable"),
    [
        (int, 2**64 - 1, False),
        (float, 1.5, False),
        (str, "ä", False),
        (bytes, b"\0", False),
        (bool, True, False),
        (type(None), None, False),
        (bytearray, bytearray(b"x"), True),
        (list[int], [1, 2], True),
        (dict[str, float], {"a": 1.0}, True),
        (set[str], {"a"}, True),
        (frozenset[int], frozenset({1}), False),
        (tuple[int, str], (1, "a"), False),
        (tuple[int, ...], (1, 2, 3), False),
        (tuple[int, list[int]], (1, [2]), True),
        (int | None, None, False),
        (list[int] | None, [1], True),
        (dict[tuple[int, str], Visit], {(1, "a"): Visit("p")}, True),
        (Visit, Visit("p", NOW, ["x"]), True),
        (Node, Node(1, Node(2)), False),
        (Point, Point(1, 2.0), False),
        (Total, Total(Decimal("1.50"), date(2026, 1, 1)), False),
        (Colour, Colour.RED, False),
        (datetime, NOW, False),
        (datetime, datetime(2026, 1, 1), False),  # noqa: DTZ001 - naive ones can be kept
        (timedelta, timedelta(days=-1, microseconds=3), False),
        (UUID, UUID(int=7), False),
        (Money, Money(5), False),
        (Bill, Bill((Money(5), Money(6))), False),
        (dict[str, Fraction], {"a": Fraction(1, 3)}, True),
        (Any, {"a": [1, None, b"x"]}, True),
        (object, [1, "a"], True),
        (None, 7, True),
    ],
)
def test_values_come_back(tp: Any, value: object, mutable: bool) -> None:
    codec = codec_for(tp)
    assert codec.decode(codec.encode(value)) == value
    assert codec.mutable is mutable
    assert not codec.needs_trust
    assert codec_for(tp) is codec
    assert pickle.loads(pickle.dumps(codec)) is codec
    assert msgspec.json.decode(msgspec.json.encode(codec.schema)) == codec.schema


def test_the_hot_path_has_no_python_frame() -> None:
    assert type(codec_for(Visit).decode).__name__ == type(codec_for(Visit).encode).__name__ == "builtin_function_or_method"


def test_schemas() -> None:
    assert codec_for(int | None).schema == codec_for(None | int).schema == {"union": ["int", "none"]}
    assert codec_for(Money).schema == {"custom": "money"}
    assert codec_for(Visit).schema == {
        "record": f"{__name__}.Visit",
        "form": "map",
        "fields": [
            {"name": "page", "type": "str", "required": True},
            {"name": "seen", "type": {"union": ["datetime", "none"]}, "required": False, "default": None},
            {"name": "tags", "type": {"list": "str"}, "required": False, "default": []},
        ],
    }
    schema = codec_for(Node).schema
    assert isinstance(schema, dict)
    assert {"recursive": f"{__name__}.Node"} in schema["fields"][1]["type"]["union"]


def test_untyped_tuples_come_back_as_lists() -> None:
    assert codec_for(None).decode(codec_for(None).encode((1, (2,)))) == [1, [2]]


@pytest.mark.parametrize("value", [np.int64(3), np.float32(1.5), np.bool_(True), np.str_("a"), np.bytes_(b"a")])
def test_numpy_scalars_are_kept_as_builtins(value: Any) -> None:
    codec = codec_for(type(value.item()))
    assert codec.decode(codec.encode(value)) == value
    assert codec_for(list[Any]).encode([value.item()]) == codec_for(list[Any]).encode([value])


@pytest.mark.parametrize("value", [Unknown(), np.zeros(3), np.datetime64(0, "s"), 2**70, "\ud800", {"a": Unknown()}])
def test_what_cannot_be_encoded_is_named(value: object) -> None:
    with pytest.raises(StateError) as caught:
        codec_for(None).write(value)
    assert caught.value.hint


@pytest.mark.parametrize(("tp", "value"), [(int, "a"), (Visit, {"page": 1}), (str, 5), (Money, None), (Total, [1])])
def test_bytes_of_another_type_are_refused(tp: Any, value: object) -> None:
    with pytest.raises(StateError):
        codec_for(tp).read(codec_for(None).encode(value) + (b"" if value is not None else b"junk"))
    with pytest.raises(CODEC_ERRORS):
        codec_for(tp).decode(b"")


def test_errors_say_what_where_and_what_to_do() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        codec_for(Visit).decode(codec_for(None).encode({"page": 1}))
    error = codec_for(Visit).failure(caught.value, where="state 'last' of step 'visits'")
    assert str(error).splitlines() == [
        "stored bytes are not a Visit in state 'last' of step 'visits'",
        "  ValidationError: Expected `str`, got `int` - at `$.page`",
        "  hint: was a value of another type stored, or the declared type changed? See `migrate=`",
    ]


@pytest.mark.parametrize("tp", [Unknown, list[Unknown], Visit | Total, list[int] | tuple[int, ...], "Nowhere"])
def test_types_that_cannot_be_kept_are_refused_at_once(tp: Any) -> None:
    with pytest.raises(StateError):
        codec_for(tp)


def test_registering_is_refused_where_it_would_not_work() -> None:
    with pytest.raises(StateError, match="by itself"):
        register_codec(Visit, encode=repr, decode=repr, name="visit")
    with pytest.raises(StateError, match="two codecs"):
        register_codec(Unknown, encode=repr, decode=repr, name="money")


def test_pickle_needs_trust() -> None:
    assert PICKLE.needs_trust
    assert PICKLE.decode(PICKLE.encode(Fraction(1, 2))) == Fraction(1, 2)
    assert pickle.loads(pickle.dumps(PICKLE)) is PICKLE
    with pytest.raises(StateError):
        PICKLE.read(b"junk")


keys = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.timezones(), allow_imaginary=False, min_value=datetime(1900, 1, 1)),  # noqa: DTZ001
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)


def _exact(key: Any) -> Any:
    """A key with its types: 1, 1.0 and True are different."""
    return tuple(map(_exact, key)) if isinstance(key, tuple) else (type(key), key)


@given(keys, keys)
def test_keys(one: Any, other: Any) -> None:
    codec = key_codec()
    a, b = codec.encode(one), codec.encode(other)
    assert codec.decode(a) == one
    assert (a == b) == (_exact(one) == _exact(other))
    assert a == b or not b.startswith(a)
    assert encode_keys([one, other]) == [a, b]
    assert encode_keys([one] * 3) == [a] * 3


def test_equal_keys_have_equal_bytes() -> None:
    summer = timezone(timedelta(hours=2))
    for one, other in [
        (0.0, -0.0),
        (float("nan"), -float("nan")),
        (("a", 0.0), ("a", -0.0)),
        (3, np.int64(3)),
        (1.5, np.float32(1.5)),
        ("a", np.str_("a")),
        ((1,), (np.int8(1),)),
        (NOW, NOW.astimezone(summer)),
    ]:
        assert encode_key(one) == encode_key(other)
        assert encode_keys([one, one]) == encode_keys([other, other])


@pytest.mark.parametrize(
    "key",
    [[1], {1}, {"a": 1}, Point(1), Colour.RED, datetime(2026, 1, 1), Decimal(1), 2**70, Unknown(), ([1],)],  # noqa: DTZ001
)
def test_other_untyped_keys_are_refused(key: object) -> None:
    with pytest.raises(StateError, match="key_type="):
        encode_key(key)
    with pytest.raises(StateError, match="key_type="):
        encode_keys([key, key])


@pytest.mark.parametrize(
    ("tp", "key", "same"),
    [
        (str, "a", np.str_("a")),
        (int, 5, np.int32(5)),
        (float, 1.0, 1),
        (float, 0.0, -0.0),
        (Point, Point(1, 2.0), Point(1, 2)),
        (Colour, Colour.RED, Colour.RED),
        (Decimal, Decimal("1.5"), Decimal("1.50")),
        (frozenset[str], frozenset("abcdefgh"), frozenset(reversed("abcdefgh"))),
        (Total, Total(Decimal(0), date(2026, 1, 1)), Total(Decimal("-0.0"), date(2026, 1, 1))),
        (Money, Money(3), Money(3)),
        (tuple[str, UUID], ("a", UUID(int=1)), ("a", UUID(int=1))),
    ],
)
def test_typed_keys(tp: Any, key: Any, same: Any) -> None:
    codec = key_codec(tp)
    assert codec.decode(codec.encode(key)) == key
    assert type(codec.decode(codec.encode(same))) is type(key)
    assert codec.encode_many([key, same]) == [codec.encode(key)] * 2
    assert pickle.loads(pickle.dumps(codec)) is codec


def test_distinct_long_decimals_stay_distinct() -> None:
    codec = key_codec(Decimal)
    assert codec.encode(Decimal("1." + "0" * 40 + "1")) != codec.encode(Decimal("1." + "0" * 40 + "2"))


def test_a_typed_key_of_another_type_is_refused() -> None:
    for tp, key in [(str, 1), (int, True), (Point, ("a", 1.0)), (tuple[int, int], (1, "b"))]:
        with pytest.raises(StateError, match="cannot be a key"):
            key_codec(tp).encode(key)
        with pytest.raises(StateError, match="cannot be a key"):
            key_codec(tp).encode_many([key])
    with pytest.raises(StateError, match="not a key"):
        key_codec(str).decode(b"\x01")
