"""Message classes of Protocol Buffers, as `protoc` would generate them from this:

message Place { string room = 1; Place within = 2; }
message Reading { string sensor = 1; double celsius = 2; repeated int64 marks = 3; Place place = 4; optional string note = 5; }
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="readings.proto", package="tests", syntax="proto3")
    place = file.message_type.add(name="Place")
    place.field.add(name="room", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    place.field.add(name="within", number=2, type=_FIELD.TYPE_MESSAGE, type_name=".tests.Place", label=_FIELD.LABEL_OPTIONAL)
    reading = file.message_type.add(name="Reading")
    reading.field.add(name="sensor", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    reading.field.add(name="celsius", number=2, type=_FIELD.TYPE_DOUBLE, label=_FIELD.LABEL_OPTIONAL)
    reading.field.add(name="marks", number=3, type=_FIELD.TYPE_INT64, label=_FIELD.LABEL_REPEATED)
    reading.field.add(name="place", number=4, type=_FIELD.TYPE_MESSAGE, type_name=".tests.Place", label=_FIELD.LABEL_OPTIONAL)
    note = reading.field.add(name="note", number=5, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL, proto3_optional=True)
    reading.oneof_decl.add(name="_note")
    note.oneof_index = 0
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())
Reading = message_factory.GetMessageClass(_pool.FindMessageTypeByName("tests.Reading"))
