"""For tests of programs: a harness for one operator, scripted sources, virtual time, the inline executor, plain references.

Nothing here needs a JVM. May import everything below the command line.
"""

from penstock.connectors.collecting.sink import CollectSink
from penstock.testing.async_harness import AsyncHarness
from penstock.testing.clock import VirtualClock
from penstock.testing.co_harness import BroadcastHarness, CoHarness, ProcessHarness
from penstock.testing.harness import KeyedHarness, OperatorHarness, Snapshot, WindowHarness
from penstock.testing.join_harness import JoinHarness
from penstock.testing.markers import Crash, Cut, End, ProcessingTime, Record, Watermark
from penstock.testing.recorded import Recorded, replay_recorded
from penstock.testing.references import Reference, run_reference, running_counts, running_sums
from penstock.testing.running import execute_inline, run_inline
from penstock.testing.sources import ScriptedSource, scripted_watermarks

__all__ = [
    "AsyncHarness",
    "BroadcastHarness",
    "CoHarness",
    "CollectSink",
    "Crash",
    "Cut",
    "End",
    "JoinHarness",
    "KeyedHarness",
    "OperatorHarness",
    "ProcessHarness",
    "ProcessingTime",
    "Record",
    "Recorded",
    "Reference",
    "ScriptedSource",
    "Snapshot",
    "VirtualClock",
    "Watermark",
    "WindowHarness",
    "execute_inline",
    "replay_recorded",
    "run_inline",
    "run_reference",
    "running_counts",
    "running_sums",
    "scripted_watermarks",
]
