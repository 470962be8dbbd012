"""What is said of a state wherever its entries are: in manifests, in savepoints."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.state.key_groups import KeyGroups, grouping


class StateInfo(msgspec.Struct, frozen=True):
    """A declared state: enough to check an upgrade, and to read the state, without running anything.

    `earlier`: schemas that stored values may still have; `sub_schema`: of the keys of a map; `ttl`: values begin with the time
    they expire, by the clock `ttl_time`; `namespace`: how many bytes (a window) follow the key; `key_fields`: the fields that
    make the key, None if a function makes it; `scope`: whose it is, of each key ("keyed"), of the step ("broadcast") or of each
    partition ("operator"); `queryable`: whoever may ask the job's server may read it.
    """

    step: str
    name: str
    kind: str
    schema: Any = None
    key_schema: Any = None
    what: str = ""
    earlier: list[Any] = []
    sub_schema: Any = None
    ttl: bool = False
    namespace: int = 0
    ttl_time: str = ""
    key_fields: list[str | int] | None = None
    scope: str = "keyed"
    queryable: bool = False

    def grouping(self, key_groups: KeyGroups) -> KeyGroups:
        """How its keys are grouped, in a job with these groups."""
        return grouping(self.scope, key_groups)
