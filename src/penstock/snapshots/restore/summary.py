"""What a start from a snapshot takes along, in lines for people. Pure."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from penstock.compile.source_claims import SourceClaims, shown
from penstock.ids import Epoch
from penstock.jobs.manifest import Manifest
from penstock.state.entries.kinds import is_internal
from penstock.state.key_groups import NEW_JOBS


def summary_of(source: str, manifest: Manifest, claims: SourceClaims, leaves: Epoch | None) -> list[str]:
    """What is restored: states with their entries, sources with their positions."""
    made = datetime.fromtimestamp(manifest.created_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    lines = [f"starts from {source}: epoch {manifest.epoch} of job {manifest.job[:8]}, committed {made} UTC"]
    if leaves is not None:
        lines.append(f"abandons its newest epoch, {leaves}; older epochs stay as long as retention keeps them")
    if manifest.state.key_hash != NEW_JOBS:
        lines.append(f"keeps its {manifest.state.key_groups}")
    return [*lines, *_states(manifest), *_sources(manifest, claims)]


def _states(manifest: Manifest) -> list[str]:
    refs = {ref.mark: ref for stage in manifest.state.chains for chain in stage for ref in chain}.values()
    known = {int(number): info for number, info in manifest.state.ids.items()}
    if all(ref.state is not None for ref in refs):
        entries: Counter[int | None] = Counter()
        for ref in refs:
            entries[ref.state] += ref.entries
        return [
            f"state {info.step}.{info.name}: {entries[number]:,} entries"
            for number, info in sorted(known.items())
            if entries[number] or not is_internal(info.kind)
        ]
    names = ", ".join(sorted(f"{info.step}.{info.name}" for info in known.values() if not is_internal(info.kind)))
    return [f"state in {len(refs)} files, at most {sum(ref.entries for ref in refs):,} entries: {names}"]


def _sources(manifest: Manifest, claims: SourceClaims) -> list[str]:
    return [
        *(f"source {step}: resumes from {shown(state)}" for step, state in claims.kept.items()),
        *(f"source {step}: new, starts as configured" for step in claims.added),
        *(f"source {step}: gone, its position {shown(manifest.sources[step])} is dropped" for step in claims.removed),
    ]
