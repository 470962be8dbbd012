"""Whoever imports this leaves a file with its process number, in the folder that `MARKS` names."""

from __future__ import annotations

import os
from pathlib import Path

Path(os.environ["MARKS"], str(os.getpid())).touch()


def marked(number: int) -> int:
    return number
