"""The steps and states of a job, and which of them may be queried."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from penstock.errors import did_you_mean
from penstock.jobs.manifest import Manifest
from penstock.query.errors import NotQueryableError, UnknownStateError, UnknownStepError
from penstock.query.reading import Reading
from penstock.query.state_views import StateView
from penstock.state.entries.kinds import is_internal
from penstock.state.entries.state_info import StateInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Which states may be queried: those that were declared so, or all."""

    all_states: bool = False

    def allows(self, info: StateInfo, manifest: Manifest) -> bool:
        """Timers can be queried if any state of their step can."""
        if self.all_states or info.queryable:
            return True
        of_step = manifest.state.ids.values()
        return is_internal(info.kind) and any(other.queryable for other in of_step if other.step == info.step)


class Catalog:
    """Finds states by name."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._lock = threading.Lock()
        self._views: dict[tuple[str, int, int, int, str], StateView] = {}

    def steps(self, manifest: Manifest) -> dict[str, list[StateInfo]]:
        """All steps that have state, and their states."""
        found: dict[str, list[StateInfo]] = {}
        for info in manifest.state.ids.values():
            found.setdefault(info.step, []).append(info)
        return found

    def check_step(self, manifest: Manifest, step: str) -> None:
        """Refuse a step that has no state."""
        known = self.steps(manifest)
        if step not in known:
            raise UnknownStepError(f"no step {step!r:.100} has state in this job", hint=did_you_mean(step, known))

    def allowed(self, manifest: Manifest, step: str) -> list[str]:
        """The states of a step that it declared, and that may be queried."""
        self.check_step(manifest, step)
        infos = [info for info in self.steps(manifest)[step] if not is_internal(info.kind)]
        found = [info.name for info in infos if self.access.allows(info, manifest)]
        if not found:
            raise NotQueryableError(f"no state of step {step!r} may be queried", hint="declare them with queryable=True")
        return sorted(found)

    def find(self, manifest: Manifest, step: str, state: str) -> tuple[int, StateInfo]:
        """A state's number; an error that says what is not known, or not allowed."""
        self.check_step(manifest, step)
        of_step = {info.name: (int(number), info) for number, info in manifest.state.ids.items() if info.step == step}
        found = of_step.get(state)
        if found is None:
            raise UnknownStateError(f"step {step!r} has no state {state!r:.100}", hint=did_you_mean(state, of_step))
        if not self.access.allows(found[1], manifest):
            raise NotQueryableError(
                f"state {state!r} of step {step!r} may not be queried",
                hint="declare it with queryable=True, or have who runs the server allow all states",
            )
        return found

    def view(self, reading: Reading, step: str, state: str) -> StateView:
        """The state at a reading's epoch."""
        found = reading.found.get((step, state))
        if found is None:
            found = self._view(reading, step, state)
            reading.found[step, state] = found
        return found

    def _view(self, reading: Reading, step: str, state: str) -> StateView:
        """A view is kept as long as the state is declared alike, and if all that there is to know of its keys is known."""
        layout = reading.manifest.state
        number, info = self.find(reading.manifest, step, state)
        key = reading.manifest.job, number, layout.max_parallelism, layout.key_hash, repr(info)
        with self._lock:
            found = self._views.get(key)
        if found is None:
            found = StateView.of(reading, number, info)
            if found.is_settled:
                with self._lock:
                    self._views[key] = found
        return found
