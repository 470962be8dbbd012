"""Temporary folders in memory, where there is such a place: these tests commit thousands of epochs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

MEMORY = "/dev/shm"


@pytest.fixture(autouse=True, scope="module")
def _in_memory() -> Iterator[None]:
    before = tempfile.tempdir
    if os.access(MEMORY, os.W_OK):
        tempfile.tempdir = MEMORY
    yield
    tempfile.tempdir = before
