"""Law: key groups. A key's state is found again at any parallelism."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.runtime.exchange import ChannelWriter
from penstock.state.key_groups import CRC32, KeyGroups
from tests.laws.trying import Crash as Crashed
from tests.laws.trying import Interrupted, breaks, check_exact, crash, run


def check_rescaled(folder: Path) -> None:
    for parallelism in (1, 3, 2, 5):
        with pytest.raises(Crashed):
            run(folder, Interrupted(3, crash), parallelism=parallelism)
    run(folder, parallelism=4)
    check_exact(folder)


def test_state_follows_its_keys(tmp_path: Path) -> None:
    check_rescaled(tmp_path)


def test_it_fails_when_keys_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another hash on the sending side: records arrive where their key's groups are not."""
    own, other = ChannelWriter.__init__, KeyGroups(128, CRC32)
    monkeypatch.setattr(ChannelWriter, "__init__", lambda self, *args, **more: own(self, *args, **{**more, "key_groups": other}))
    breaks(lambda: check_rescaled(tmp_path))
