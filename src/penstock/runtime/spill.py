"""Frames of a task, in memory up to a limit and in a temporary file beyond it."""

from __future__ import annotations

import tempfile
from collections import defaultdict, deque
from collections.abc import Container, Iterator
from typing import IO

from penstock.ids import Milliseconds
from penstock.runtime.frames import Frame, Trailer

MEMORY_LIMIT = 256 * 1024 * 1024


class FrameBuffer:
    """Everything an epoch sent to one task. Heads stay in memory; payloads may spill."""

    def __init__(self, limit: int = MEMORY_LIMIT) -> None:
        self.trailers: dict[int, Trailer] = {}
        self.failed = False
        self._limit = limit
        self._held = 0
        self._frames: list[tuple[Frame, int, int]] = []
        self._file: IO[bytes] | None = None
        self._written = 0

    def add(self, frame: Frame) -> None:
        size = len(frame.data)
        if self._held + size <= self._limit:
            self._held += size
            self._frames.append((frame, -1, size))
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="penstock-frames-")  # noqa: SIM115 - lives as long as the buffer
        self._file.write(frame.data)
        frame.data = b""
        self._frames.append((frame, self._written, size))
        self._written += size

    def take(self, channels: Container[int]) -> Iterator[Frame]:
        """Take out the frames of these channels, in order."""
        mine = [entry for entry in self._frames if entry[0].channel in channels]
        if mine:
            others = [entry for entry in self._frames if entry[0].channel not in channels]
            self._frames = mine
            yield from self.in_order()
            self._frames = others

    def watermarks(self, channel: int) -> dict[int, deque[Milliseconds]]:
        """The watermarks of a channel's frames, in sequence, by upstream."""
        found: dict[int, deque[Milliseconds]] = defaultdict(deque)
        for frame, _, _ in sorted(self._frames, key=lambda entry: entry[0].sequence):
            if frame.channel == channel:
                found[frame.upstream].append(frame.watermark)
        return found

    def in_order(self) -> Iterator[Frame]:
        """The frames by (watermark, upstream, sequence); each is let go of once it was taken."""
        self._frames.sort(key=lambda entry: entry[0].order(), reverse=True)
        while self._frames:
            frame, offset, size = self._frames.pop()
            if offset >= 0:
                assert self._file is not None
                self._file.seek(offset)
                frame.data = self._file.read(size)
            yield frame

    def close(self) -> None:
        self._frames.clear()
        if self._file is not None:
            self._file.close()
