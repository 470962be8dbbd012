"""A finished job that is to continue after all. Pure."""

from __future__ import annotations

import msgspec

from penstock.ids import MAX_WATERMARK
from penstock.jobs.manifest import Manifest


def reopened(manifest: Manifest, *, ask_again: bool) -> Manifest:
    """A finished epoch, ready for more input: the end of time is taken back. `ask_again`: so is the end of its sources.

    Event time continues where the clocks of the sources are. What the end of time has closed stays closed.
    """
    if not manifest.finished:
        return manifest
    sources = manifest.sources
    if ask_again:
        sources = {step: msgspec.structs.replace(state, ended=False) for step, state in sources.items()}
    watermarks = {step: time for step, time in manifest.watermarks.items() if time != MAX_WATERMARK}
    return msgspec.structs.replace(manifest, finished=False, sources=sources, watermarks=watermarks)
