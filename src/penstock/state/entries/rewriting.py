"""Stored entries, written anew: for another type of value, or another time to live.

Laws:
- Whatever schemas the stored values have had, those that are written have the declared one, and are read back before they count.
- What is written has every field: also one that the stored value lacked, with its default.
- An entry that has expired is not brought back to life.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import msgspec

from penstock.ids import MAX_WATERMARK, Milliseconds
from penstock.state.encoding.aliases import Aliases, Path, inner, members
from penstock.state.encoding.codecs import Codec
from penstock.state.encoding.stored_values import STAMP_SIZE, stamp_of, stamped
from penstock.state.encoding.untyped import decode_untyped
from penstock.state.entries.kinds import StateKind

_unpack: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
_pack = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRewriter:
    """Makes values of the declared type: by the user's function, by renaming fields, or by merely reading and writing them."""

    codec: Codec
    schema: Any
    aliases: Aliases
    migrate: Callable[[Any], Any] | None = None
    pickled: bool = False

    def __call__(self, data: bytes) -> bytes:
        if self.migrate is not None:
            data = self.codec.write(self.migrate(self.plain(data)))
        elif self.aliases:
            data = _pack(renamed(_unpack(data), self.schema, self.aliases))
        value = self.codec.decode(data)
        fill_defaults(value)
        return self.codec.encode(value)

    def plain(self, data: bytes) -> Any:
        """A stored value as a `migrate=` function gets it: records are dicts."""
        return pickle.loads(data) if self.pickled else decode_untyped(data)


def fill_defaults(value: Any) -> None:
    """Let the dataclass instances in a decoded value have the defaults of fields that were not stored.

    msgspec leaves these to the class, and then does not write them.
    """
    if is_dataclass(value) and not isinstance(value, type):
        own = getattr(value, "__dict__", None)
        for one in fields(value):
            inside = getattr(value, one.name)
            if own is not None:
                own.setdefault(one.name, inside)
            fill_defaults(inside)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            fill_defaults(getattr(value, name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            fill_defaults(key)
            fill_defaults(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            fill_defaults(item)


def renamed(
    value: Any, schema: Any, aliases: Aliases, path: Path = (), outer: Mapping[str, tuple[Any, Path]] | None = None
) -> Any:
    """A plain value with the names that its fields have in `schema`. The value is changed."""
    outer = outer or {}
    for member in members(schema):
        while isinstance(member, dict) and "constrained" in member:
            member = member["constrained"]
        if isinstance(member, dict) and "recursive" in member:
            member, path = outer[member["recursive"]]
        if not isinstance(member, dict) or not _fits(value, member):
            continue
        if "record" in member:
            inside = {**outer, member["record"]: (member, path)}
            if isinstance(value, dict):
                for one in member["fields"]:
                    here = (*path, one["name"])
                    for former in aliases.former(here):
                        if former in value and one["name"] not in value:
                            value[one["name"]] = value.pop(former)
                    if one["name"] in value:
                        value[one["name"]] = renamed(value[one["name"]], one["type"], aliases, here, inside)
                return value
            first = 1 if "tag" in member else 0
            for number, (one, item) in enumerate(zip(member["fields"], value[first:], strict=False), first):
                value[number] = renamed(item, one["type"], aliases, (*path, one["name"]), inside)
            return value
        kinds = inner(member)
        if isinstance(value, dict):
            return {key: renamed(item, kinds[1], aliases, path, outer) for key, item in value.items()}
        if "tuple" in member:
            return [renamed(item, kind, aliases, path, outer) for item, kind in zip(value, kinds, strict=True)]
        return [renamed(item, kinds[0], aliases, path, outer) for item in value]
    return value


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Is this the type of a union that the value is of? No two of them look alike, but for their tags."""
    if "record" in schema:
        tag = schema.get("tag")
        if schema["form"] == "array":
            return isinstance(value, list) and (tag is None or value[0] == tag[1])
        return isinstance(value, dict) and (tag is None or value.get(tag[0], tag[1]) == tag[1])
    return isinstance(value, dict) if "dict" in schema else isinstance(value, list) and bool(inner(schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRewriter:
    """Rewrites the entries of a state.

    `now`: if stored values have a time to live, what its clock shows. `stamped`: values that are written have one. It
    ends at `expires` for values that had none, and for all if it is counted `anew`.
    """

    kind: StateKind
    values: Callable[[bytes], bytes]
    now: Milliseconds | None = None
    stamped: bool = False
    expires: Milliseconds = MAX_WATERMARK
    anew: bool = False

    def __call__(self, data: bytes) -> bytes | None:
        """The entry as it is written; None: it is to be removed."""
        items = [item for item in map(self._item, self.kind.items(data)) if item is not None]
        return self.kind.entry(items) if items else None

    def _item(self, data: bytes) -> bytes | None:
        stamp = self.expires
        if self.now is not None:
            stored = stamp_of(data)
            if stored <= self.now:
                return None
            stamp = self.expires if self.anew else stored
            data = data[STAMP_SIZE:]
        data = self.values(data)
        return stamped(stamp, data) if self.stamped else data
