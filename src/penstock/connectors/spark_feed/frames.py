"""DataFrames by name, on the driver.

A definition travels to the workers, a DataFrame cannot: the definition holds the name. Names are counted, so that the same
program gives the same names when it is started again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_frames: dict[str, DataFrame] = {}
_lock = threading.Lock()


def remember(frame: DataFrame) -> str:
    with _lock:
        for name, known in _frames.items():
            if known is frame:
                return name
        name = f"frame-{len(_frames) + 1}"
        _frames[name] = frame
        return name


def recall(name: str) -> DataFrame:
    with _lock:
        frame = _frames.get(name)
    if frame is None:
        raise SourceError(
            f"the DataFrame of this source ({name}) is not known in this process",
            hint="a DataFrame lives where it was made: build the source in the program that runs the job",
        )
    return frame
