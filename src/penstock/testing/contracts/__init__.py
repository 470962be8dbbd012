"""The contract that every source and every sink keeps, as checks to run on one's own.

    @pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
    def test_my_source(check, tmp_path):
        check(SourceCase(source=MySource(...), storage=LocalStorage(tmp_path), expected={"0": [1, 2, 3]}))

- `SOURCE_CHECKS`, over a `SourceCase`: positions, replay, order within a partition, limits, crash between every two calls, close.
- `SINK_CHECKS`, over a factory of `SinkCase`s: visible at the commit and not before, repeated commit, crash between every two
  calls, abort, a late driver, order, close.

A check returns, or raises `ContractBrokenError`, which says which rule was broken and how.
"""

from penstock.testing.contracts.broken import ContractBrokenError
from penstock.testing.contracts.sink_case import SinkCase
from penstock.testing.contracts.sink_checks import SINK_CHECKS
from penstock.testing.contracts.source_case import SourceCase
from penstock.testing.contracts.source_checks import SOURCE_CHECKS

__all__ = ["SINK_CHECKS", "SOURCE_CHECKS", "ContractBrokenError", "SinkCase", "SourceCase"]
