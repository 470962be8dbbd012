"""Names for the numbers and strings that identify things, so that they cannot be mixed up."""

from __future__ import annotations

from typing import NewType

StepId = NewType("StepId", str)
"""A step of the program: its `name=`, or a derived one."""

JobId = NewType("JobId", str)
"""The uuid of a job: never reused, unlike its name."""

Epoch = NewType("Epoch", int)
"""Number of an epoch: grows by one, never reused."""

Term = NewType("Term", int)
"""Number of a driver's reign over a job."""

KeyGroup = NewType("KeyGroup", int)
"""`crc32(encoded key) % max_parallelism`."""

Milliseconds = int
"""Event time and processing time, since the Unix epoch."""

MIN_WATERMARK = -(2**63)
"""No time has passed: the watermark before any record."""

MAX_WATERMARK = 2**63 - 1
"""All time has passed: the watermark after the end of a bounded input."""
