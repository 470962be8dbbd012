"""Two-phase commit for people's own sinks.

`TransactionalSink` for a target that has transactions, `WriteAheadSink` for one that has none; both stage rows in the job's
storage and write to the target from the driver, once the epoch is durable. Everything else implements the protocol itself:
`penstock.connectors.protocol.Sink`.
"""

from penstock.connectors.staging.rows import staged_rows
from penstock.connectors.twophase.identity import PublishId, SinkKey
from penstock.connectors.twophase.sqlite import SqliteSink
from penstock.connectors.twophase.transactional import Transaction, TransactionalSink
from penstock.connectors.twophase.write_ahead import WriteAheadSink

__all__ = ["PublishId", "SinkKey", "SqliteSink", "Transaction", "TransactionalSink", "WriteAheadSink", "staged_rows"]
