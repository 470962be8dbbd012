"""Names for the numbers and strings that identify things, so that they cannot be mixed up."""

from __future__ import annotations

import re
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
"""The key hash of the encoded key, `% max_parallelism`: see `penstock.state.key_groups`."""

Milliseconds = int
"""Event time and processing time, since the Unix epoch."""

MIN_WATERMARK = -(2**63)
"""No time has passed: the watermark before any record."""

MAX_WATERMARK = 2**63 - 1
"""All time has passed: the watermark after the end of a bounded input."""

_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_job_id(text: str) -> bool:
    """Job ids are parts of paths: of local state, of checkpoints.

    >>> is_job_id("5641099e387845d4ad3aa4a648129bee"), is_job_id("../elsewhere")
    (True, False)
    """
    return _JOB_ID.fullmatch(text) is not None
