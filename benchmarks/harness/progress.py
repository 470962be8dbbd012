"""Lines that say what is going on, on stderr, so that stdout is the table."""

from __future__ import annotations

import sys
import time

_STARTED = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - _STARTED:6.1f} s] {text}", file=sys.stderr, flush=True)
