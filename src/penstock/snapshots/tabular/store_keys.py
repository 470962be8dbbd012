"""Store keys of a snapshot, taken apart. (Here without the head of group and state id: see `penstock.state.entries.layout`.)

    value, reducing, aggregating   key · window
    list                           key · window · chunk(8)
    map                            key · window · map key
    timers                         time(8) · key · window
    slices, session runs           time(8) · level(1)

A window is 16 bytes, in states of windows only. Keys are MessagePack, which says by itself where it ends (`entry_keys`).
"""

from __future__ import annotations

from penstock.state.entries.entry_keys import end_of_value


def split_map_keys(raw_keys: list[bytes], namespace: int) -> tuple[list[bytes], list[bytes]]:
    """(key · window, map key) of each. Sorted keys come together, and no key is the beginning of another."""
    before = None
    at = 0
    keys, subs = [], []
    for raw in raw_keys:
        if before is None or not raw.startswith(before):
            at = end_of_value(raw) + namespace
            before = raw[:at]
        keys.append(before)
        subs.append(raw[at:])
    return keys, subs
