"""What is said about a change of type is true of the bytes: values of the old type, encoded, are read by the new one."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from penstock.errors import PlanError, StateError
from penstock.state.encoding.aliases import Aliases
from penstock.state.encoding.codecs import PICKLE, codec_for
from penstock.state.encoding.evolution import compare, needs_trust, worst
from penstock.state.encoding.keys import key_codec
from penstock.state.encoding.same_bytes import same, same_keys
from penstock.state.entries.rewriting import ValueRewriter
from penstock.state.overlay.handles import UNTYPED
from tests.state import random_types as r

FILTERED = settings(suppress_health_check=list(HealthCheck))


def verdict(old: Any, new: Any, aliases: dict[str, str] | None = None) -> str:
    return worst(compare(codec_for(old).schema, codec_for(new).schema, Aliases(aliases)))


def why(old: Any, new: Any, aliases: dict[str, str] | None = None) -> list[str]:
    return [note.text for note in compare(codec_for(old).schema, codec_for(new).schema, Aliases(aliases))]


def codec(t: r.T) -> Any:
    try:
        return codec_for(r.built(t))
    except (StateError, TypeError):
        return None


def check_read(data: st.DataObject, old: r.T, new: r.T) -> None:
    """A value that was stored by the old type is what it should be in the new one."""
    before, after = codec(old), codec(new)
    plain = data.draw(r.values(old), label="value")
    value = r.instance(plain, old, before.tp)
    assert r.plainly(after.decode(before.encode(value)), new) == r.read_as(r.plainly(value, old), old, new)


@FILTERED
@given(data=st.data())
def test_compatible_is_a_promise(data: st.DataObject) -> None:
    """Whatever was done to a type: if it is called compatible, every value is read, and is right."""
    old = data.draw(st.one_of(r.records(), r.records(), r.types()), label="old")
    new = old
    for _ in range(data.draw(st.integers(1, 3))):
        new = data.draw(r.edited(new), label="new")
    before, after = codec(old), codec(new)
    assume(before is not None and after is not None)
    said = worst(compare(before.schema, after.schema))
    event(said)
    if said == "compatible":
        check_read(data, old, new)


@FILTERED
@given(data=st.data())
def test_what_stored_values_survive_is_compatible(data: st.DataObject) -> None:
    old = data.draw(st.one_of(r.records(), r.records(), r.types()), label="old")
    new = data.draw(r.evolved(old), label="new")
    before, after = codec(old), codec(new)
    assume(before is not None and after is not None)
    assert worst(compare(before.schema, after.schema)) == "compatible", (before.schema, after.schema)
    check_read(data, old, new)


@FILTERED
@given(data=st.data())
def test_a_type_is_compatible_with_itself_however_it_is_called(data: st.DataObject) -> None:
    t = data.draw(st.one_of(r.records(), r.types()))
    before, after = codec(t), codec(t)
    assume(before is not None)
    stored = msgspec.json.decode(msgspec.json.encode(before.schema).replace(b".R", b".Other"))  # as a manifest keeps it
    assert compare(stored, after.schema) == []
    assert same(stored, after.schema)
    check_read(data, t, t)


# --- rule by rule ------------------------------------------------------------------------------------------------------------


@dataclass
class Point:
    x: int
    y: int


@dataclass
class Named:
    x: int
    y: int
    name: str = ""


@dataclass
class Wide:
    x: float
    y: int | None


@dataclass
class Strange:
    x: str
    y: int


@dataclass
class Needed:
    x: int
    y: int
    name: str


class Pair(NamedTuple):
    x: int
    y: int


class Triple(NamedTuple):
    x: int
    y: int
    z: int = 0


class Swapped(NamedTuple):
    y: int
    x: int


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    x: int


class Omits(msgspec.Struct, omit_defaults=True):
    x: int
    y: int = 1


class OmitsOther(msgspec.Struct, omit_defaults=True):
    x: int
    y: int = 2


class Partly(TypedDict, total=False):
    x: int


class Wholly(TypedDict):
    x: int


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Levels(enum.Enum):
    LOWEST = 1
    HIGH = 2
    TOP = 3


class Unset(msgspec.Struct):
    x: int | msgspec.UnsetType = msgspec.UNSET


class Set1(msgspec.Struct):
    x: int


@dataclass
class Late:
    a: int
    x: int = field(init=False, default=7)


@dataclass
class Early:
    a: int
    x: int


@dataclass
class Tree:
    label: str
    below: list[Tree] = field(default_factory=list)


@dataclass
class Bush:
    label: str
    below: list[Bush] = field(default_factory=list)
    colour: str = "green"


@dataclass
class Titled:
    title: str
    below: list[Titled] = field(default_factory=list)


@dataclass
class Numbered:
    label: int
    below: list[Numbered] = field(default_factory=list)


Positive = Annotated[int, msgspec.Meta(gt=0)]

RULES: list[tuple[Any, Any, str]] = [
    (int, int, "compatible"),
    (int, float, "compatible"),
    (float, int, "incompatible"),
    (int, str, "incompatible"),
    (int, bool, "incompatible"),
    (bool, int, "incompatible"),
    (int, Decimal, "incompatible"),
    (int, int | None, "compatible"),
    (int, float | None, "compatible"),
    (int | None, int, "incompatible"),
    (int, int | str, "compatible"),
    (int, float | str, "compatible"),
    (int, float | Level, "incompatible"),
    (int | str, float | str | None, "compatible"),
    (int | str, int, "incompatible"),
    (list[int], list[float], "compatible"),
    (list[int], tuple[int, ...], "incompatible"),
    (list[int], set[int], "incompatible"),
    (set[int], set[float], "incompatible"),
    (set[int], set[int | str], "compatible"),
    (dict[str, int], dict[str, float], "compatible"),
    (dict[int, int], dict[float, int], "incompatible"),
    (tuple[int, str], tuple[float, str], "compatible"),
    (tuple[int, str], tuple[int, str, int], "incompatible"),
    (Point, Named, "compatible"),
    (Named, Point, "compatible"),
    (Point, Needed, "incompatible"),
    (Point, Wide, "compatible"),
    (Point, Strange, "incompatible"),
    (Point, Pair, "incompatible"),
    (Pair, Triple, "compatible"),
    (Triple, Pair, "incompatible"),
    (Pair, Swapped, "incompatible"),
    (list[Point], list[Named | None], "compatible"),
    (Point, Closed, "incompatible"),
    (Closed, Point, "incompatible"),
    (Set1, Closed, "compatible"),
    (Omits, OmitsOther, "incompatible"),
    (Omits, Point, "incompatible"),
    (Point, Omits, "compatible"),
    (Partly, Wholly, "incompatible"),
    (Wholly, Partly, "compatible"),
    (Unset, Set1, "incompatible"),
    (Late, Early, "incompatible"),
    (Cat, Dog, "incompatible"),
    (Cat, Cat | Dog, "compatible"),
    (Cat | Dog, Cat, "incompatible"),
    (Set1, Cat, "incompatible"),
    (Level, Levels, "compatible"),
    (Levels, Level, "incompatible"),
    (Level, int, "incompatible"),
    (Literal["a"], Literal["a", "b"], "compatible"),
    (Literal["a", "b"], Literal["a"], "incompatible"),
    (Literal["a"], Literal["a"] | None, "compatible"),
    (Literal["a"], str, "compatible"),
    (Literal["a", 1], str, "incompatible"),
    (str, Literal["a"], "incompatible"),
    (Positive, int, "compatible"),
    (int, Positive, "incompatible"),
    (Positive, Positive | None, "compatible"),
    (Positive, float, "compatible"),
    (Tree, Bush, "compatible"),
    (Bush, Tree, "compatible"),
    (Tree, Numbered, "incompatible"),
    (int, Any, "compatible"),
    (list[str], Any, "compatible"),
    (tuple[int, ...], Any, "incompatible"),
    (Point, Any, "incompatible"),
    (Any, int, "incompatible"),
]


@pytest.mark.parametrize(("old", "new", "expected"), RULES, ids=lambda rule: getattr(rule, "__name__", str(rule)))
def test_rules(old: Any, new: Any, expected: str) -> None:
    assert verdict(old, new) == expected, why(old, new)


def test_every_difference_is_named_with_its_path() -> None:
    @dataclass
    class Old:
        at: Point
        tags: list[Pair]
        gone: int = 0

    @dataclass
    class New:
        at: Strange
        tags: list[Swapped]
        fresh: int

    assert why(Old, New) == [
        "field 'at.x' was int and is str now",
        "field 'tags.y' is at place 0, where 'x' is stored: fields without names can only be appended",
        "field 'tags.x' is at place 1, where 'y' is stored: fields without names can only be appended",
        "field 'fresh' is new and has no default",
        "field 'gone' is gone",
    ]


def test_recursive_types() -> None:
    assert why(Tree, Bush) == ["field 'colour' is new; stored values get its default"]
    assert why(Tree, Titled, {"label": "title"}) == ["field 'title' was called 'label'"]
    assert verdict(Tree, Titled, {"label": "title"}) == "migrates"


# --- aliases -----------------------------------------------------------------------------------------------------------------


@dataclass
class Address:
    zip: str


@dataclass
class Person:
    addr: Address
    born: int


@dataclass
class NewAddress:
    postcode: str


@dataclass
class NewPerson:
    address: NewAddress
    year: int


RENAMED = {"addr": "address", "addr.zip": "address.postcode", "born": "year"}


@pytest.mark.parametrize("aliases", [RENAMED, {**RENAMED, "addr.zip": "postcode"}])
def test_renamed_fields_migrate(aliases: dict[str, str]) -> None:
    assert verdict(Person, NewPerson, aliases) == "migrates"
    assert why(Person, NewPerson, aliases) == [
        "field 'address' was called 'addr'",
        "field 'address.postcode' was called 'zip'",
        "field 'year' was called 'born'",
    ]
    assert verdict(NewPerson, NewPerson, aliases) == "compatible"
    assert verdict(Person, NewPerson) == "incompatible"


@dataclass
class Inner:
    a: int
    b: int = 7


@dataclass
class Outer:
    inner: list[Inner]
    new: int
    added: str = "?"


def test_what_is_rewritten_has_every_field() -> None:
    codec = codec_for(Outer)
    rewrite = ValueRewriter(codec=codec, schema=codec.schema, aliases=Aliases({"old": "new"}))
    stored = msgspec.msgpack.encode({"inner": [{"a": 1}], "old": 2})
    assert msgspec.msgpack.decode(rewrite(stored)) == {"inner": [{"a": 1, "b": 7}], "new": 2, "added": "?"}


def test_a_renamed_field_that_also_changed() -> None:
    @dataclass
    class Now:
        address: NewAddress
        year: str

    assert verdict(Person, Now, RENAMED) == "incompatible"
    assert "field 'year' was int and is str now" in why(Person, Now, RENAMED)


def test_two_stored_fields_cannot_become_one() -> None:
    @dataclass
    class Both:
        born: int
        year: int
        address: NewAddress

    assert verdict(Both, NewPerson, RENAMED) == "incompatible"
    assert "field 'year' is stored under several names: 'born', 'year'" in why(Both, NewPerson, RENAMED)


def test_aliases_that_make_no_sense() -> None:
    with pytest.raises(PlanError, match="moves a field to another record"):
        Aliases({"a.b": "c.d"})
    with pytest.raises(PlanError, match="which its type does not have"):
        Aliases({"old": "nowhere"}).check(codec_for(Person).schema, "state 'p'")
    with pytest.raises(PlanError, match="but its type has both"):
        Aliases({"addr": "born"}).check(codec_for(Person).schema, "state 'p'")
    Aliases(RENAMED).check(codec_for(NewPerson).schema, "state 'p'")


# --- keys --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (None, None, True),
        (int, None, True),
        (str, None, True),
        (tuple[int, str], None, True),
        (int | str, None, True),
        (float, None, False),
        (Point, None, False),
        (None, int, False),
        (int, float, False),
        (int, str, False),
        (Pair, Triple, False),
        (Pair, Pair, True),
    ],
)
def test_keys_are_found_by_their_bytes(old: Any, new: Any, found: bool) -> None:
    assert same_keys(key_codec(old).schema, key_codec(new).schema) is found


@FILTERED
@given(data=st.data())
def test_keys_of_a_type_are_found_without_it(data: st.DataObject) -> None:
    flat = st.one_of(st.integers(-(2**63), 2**63), st.text(), st.booleans(), st.none())
    key = data.draw(st.one_of(flat, st.tuples(flat, st.integers(0, 5))))
    tp: Any = type(key) if not isinstance(key, tuple) else tuple[type(key[0]), int]  # type: ignore[misc]
    assert same_keys(key_codec(tp).schema, None)
    assert key_codec(tp).encode(key) == key_codec(None).encode(key)
    assert key_codec(None).decode(key_codec(tp).encode(key)) == key


def test_pickle_needs_trust_and_is_no_other_type() -> None:
    assert needs_trust(PICKLE.schema)
    assert not needs_trust(codec_for(Point).schema)
    assert worst(compare(PICKLE.schema, PICKLE.schema)) == "compatible"
    assert worst(compare(PICKLE.schema, codec_for(Point).schema)) == "incompatible"
    assert worst(compare(codec_for(int).schema, PICKLE.schema)) == "incompatible"


@pytest.mark.parametrize("value", [0, "x", [1, 2], {"a": [None, 1.5]}, b"b"])
def test_plain_values_are_read_without_a_type(value: Any) -> None:
    assert UNTYPED.decode(codec_for(type(value)).encode(value)) == value
