"""The corruption matrix, with few random places: all of it is `python tests/corruption.py`."""

from __future__ import annotations

import pytest

from penstock.storage import sealed
from tests.corruption import DETECTED, FINE, examine
from tests.damaged_jobs import SCENES, Scene, StoppedJob
from tests.damages import Target


@pytest.mark.parametrize("scene", SCENES)
def test_damage_is_detected_or_does_not_matter(scene: type[Scene]) -> None:
    matrix = examine(1, [scene])
    assert not matrix.faults, "\n\n".join(matrix.faults)
    for kind, found in matrix.outcomes.items():
        assert set(found.values()) <= set(FINE), kind
    needed = {"job.json", "manifest", "base", "delta", "merged delta", "staged rows", "savepoint.json", "imported file"}
    for kind in needed & set(matrix.outcomes):
        assert matrix.outcomes[kind]["zeroed"] == DETECTED, kind


def test_it_fails_without_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(StoppedJob):
        def kinds(self) -> dict[str, Target]:
            return {"job.json": super().kinds()["job.json"]}

    monkeypatch.setattr(sealed, "crc32", lambda body: 1)
    matrix = examine(12, [Small])
    assert matrix.faults
