"""Sources and sinks. `protocol` is the contract; each system has a package of its own with `source` and `sink`.

What a program uses of them is named here.
Definitions are small, frozen and picklable; enumerators and committers live on the driver, readers and writers in the workers.
Systems share `formats/` and `staging/`, never import each other's packages, and know nothing of the engine.
"""

from penstock.connectors.append_log.log import AppendLog
from penstock.connectors.append_log.source import AppendLogSource
from penstock.connectors.collecting.sink import CollectSink
from penstock.connectors.collection.source import CollectionSource
from penstock.connectors.files.reading.read_output import Output, read_output
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.connectors.generator.source import GeneratorSource
from penstock.connectors.hybrid.source import HybridSource
from penstock.connectors.printing.sink import PrintSink
from penstock.connectors.twophase import SqliteSink, TransactionalSink, WriteAheadSink

__all__ = [
    "AppendLog",
    "AppendLogSource",
    "CollectSink",
    "CollectionSource",
    "FileSink",
    "FileSource",
    "GeneratorSource",
    "HybridSource",
    "Output",
    "PrintSink",
    "SqliteSink",
    "TransactionalSink",
    "WriteAheadSink",
    "read_output",
]
