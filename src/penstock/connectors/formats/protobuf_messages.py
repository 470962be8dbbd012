"""Protocol Buffers: payloads of one message class; nested messages, lists and maps as dicts and lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any

from penstock.connectors.installed import needed
from penstock.errors import ConfigError, SinkError
from penstock.plan.schema import Schema
from penstock.records import Batch, Records, RowType, as_dict

_MAGIC = 0


@dataclass(frozen=True, slots=True)
class ProtobufFormat:
    """Messages of a generated class, named as `module:Class`. `framed`: payloads begin with the id of a schema registry and the
    message's index, as Confluent's serializers write them (the id is not looked up). `row_class`: made of each record;
    otherwise it is a dict."""

    message: str
    _: KW_ONLY
    framed: bool = False
    row_class: type | None = None

    def __post_init__(self) -> None:
        module, colon, name = self.message.partition(":")
        if not (module and colon and name):
            raise ConfigError(f"message={self.message!r} is not module:Class", hint='for example "readings_pb2:Reading"')

    @property
    def row(self) -> RowType:
        return RowType(self.row_class)

    def decoder(self) -> ProtobufDecoder:
        return ProtobufDecoder(self)

    def encoder(self) -> ProtobufEncoder:
        return ProtobufEncoder(self)

    def known_columns(self) -> Schema | None:
        try:
            names = [field.name for field in self.load().DESCRIPTOR.fields]
        except Exception:  # not importable here: nothing is known
            return None
        return Schema.of(((name, None) for name in names), self.row_class)

    def describe(self) -> str:
        return f"protobuf {self.message}"

    def load(self) -> Any:
        """The generated class."""
        needed("google.protobuf", "penstock[protobuf]", "ProtobufFormat")
        module, _, name = self.message.partition(":")
        try:
            found: Any = import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"the message class {self.message} cannot be imported", detail=str(error)) from error
        return found


class ProtobufDecoder:
    def __init__(self, format: ProtobufFormat) -> None:
        self._class = format.load()
        self._errors = needed("google.protobuf.message", "penstock[protobuf]", "ProtobufFormat").DecodeError
        self._row = format.row_class
        self._framed = format.framed
        self._convert = _converter(self._class.DESCRIPTOR)

    def decode(self, payloads: Sequence[bytes]) -> Batch:
        parse, convert = self._class.FromString, self._convert
        try:
            rows = [convert(parse(_unframed(payload) if self._framed else payload)) for payload in payloads]
        except self._errors as error:
            raise ValueError(str(error)) from error
        return Records(rows if self._row is None else [self._row(**row) for row in rows])


class ProtobufEncoder:
    def __init__(self, format: ProtobufFormat) -> None:
        if format.framed:
            raise ConfigError("framed Protocol Buffers are read only", hint="leave framed= out")
        self._class = format.load()
        self._parse = needed("google.protobuf.json_format", "penstock[protobuf]", "ProtobufFormat").ParseDict

    def encode(self, batch: Batch) -> list[bytes]:
        made = []
        for value in batch.values():
            if isinstance(value, self._class):
                made.append(value.SerializeToString())
                continue
            try:
                made.append(self._class(**as_dict(value)).SerializeToString(deterministic=True))
            except (ValueError, TypeError) as error:
                raise SinkError("a record does not fit the message class", detail=f"record: {value!r:.200}\n{error}") from error
        return made


def _converter(descriptor: Any) -> Callable[[Any], dict[str, Any]]:
    """From a message to a dict, with the ways of its fields worked out once."""
    ways: list[tuple[str, Callable[[Any], Any] | None, bool]] = []
    for field in descriptor.fields:
        nested = field.message_type
        if nested is None:
            many = _is_repeated(field)
            ways.append((field.name, list if many else None, not many and field.has_presence))
        elif nested.GetOptions().map_entry:
            inner = nested.fields_by_name["value"].message_type
            ways.append((field.name, dict if inner is None else _map_of(_later(inner)), False))
        elif _is_repeated(field):
            ways.append((field.name, _list_of(_later(nested)), False))
        else:
            ways.append((field.name, _later(nested), True))

    def convert(message: Any) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, way, optional in ways:
            if optional and not message.HasField(name):
                row[name] = None
            else:
                value = getattr(message, name)
                row[name] = value if way is None else way(value)
        return row

    return convert


def _later(descriptor: Any) -> Callable[[Any], dict[str, Any]]:
    """A message may hold one of its own kind."""
    made: list[Callable[[Any], dict[str, Any]]] = []

    def convert(message: Any) -> dict[str, Any]:
        if not made:
            made.append(_converter(descriptor))
        return made[0](message)

    return convert


def _map_of(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda found: {key: convert(value) for key, value in found.items()}


def _list_of(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda found: [convert(value) for value in found]


def _is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)
    return bool(repeated) if repeated is not None else field.label == field.LABEL_REPEATED


def _unframed(payload: bytes) -> bytes:
    """Without the magic byte, the id, and the indexes of the message in its file."""
    if len(payload) < 6 or payload[0] != _MAGIC:
        raise ValueError("the message does not begin with the id of its schema")
    count, at = _varint(payload, 5)
    for _ in range(count):
        _, at = _varint(payload, at)
    return payload[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag number and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
