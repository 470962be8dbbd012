"""The rows that an expression is computed for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns by name, all as long. `careful`: nothing is computed for a row that does not need it."""

    columns: Mapping[str, pa.Array]
    size: int
    careful: bool = False

    def __len__(self) -> int:
        return self.size

    def take(self, rows: npt.NDArray[np.int64]) -> Rows:
        indices = pa.array(rows)
        return Rows({name: column.take(indices) for name, column in self.columns.items()}, len(rows), self.careful)

    def slice(self, start: int, stop: int) -> Rows:
        columns = {name: column.slice(start, stop - start) for name, column in self.columns.items()}
        return Rows(columns, stop - start, self.careful)

    def array(self, value: Any) -> pa.Array:
        """A literal's value for each row; an array as it is."""
        return pa.repeat(value, self.size) if isinstance(value, pa.Scalar) else value


Argument = Callable[[Rows], Any]
"""An argument as a function of rows: gives an array, or a scalar that stands for all rows."""
