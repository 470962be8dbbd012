"""What sinks share: rows staged in the job's storage (`rows`) and delivered by the driver (`sink`), leftovers of failed attempts,
and output that touches no disk (`volatile`).
"""

from penstock.connectors.staging.leftovers import leftovers
from penstock.connectors.staging.rows import staged_rows
from penstock.connectors.staging.sink import StagedCommitter, StagedSink
from penstock.connectors.staging.volatile import CommittedOnce, VolatileCommitter, VolatileSink, VolatileWriter

__all__ = [
    "CommittedOnce",
    "StagedCommitter",
    "StagedSink",
    "VolatileCommitter",
    "VolatileSink",
    "VolatileWriter",
    "leftovers",
    "staged_rows",
]
