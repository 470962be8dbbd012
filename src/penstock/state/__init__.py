"""Keyed state, from the bytes up. Each room imports those below it:

    overlay/    what a task has read and changed in an epoch, and the handles through which functions do so
    stores/     the committed state of a partition on this host: a cache of the files
    files/      the durable form: immutable sorted files
    entries/    the kinds of state, in a registry: how the entries of each are made, shown, moved and compared
    tabular/    columns of entries, in Arrow
    encoding/   values and keys as bytes; schemas, and whether one can be read as another

`descriptors` is what a user declares (and what is named here), `key_groups` says which partition owns a key. Imports `storage/`.
"""

from penstock.state.descriptors import (
    AggregatingState,
    BroadcastMapState,
    ListState,
    MapState,
    OperatorListState,
    ReducingState,
    Ttl,
    ValueState,
)

__all__ = [
    "AggregatingState",
    "BroadcastMapState",
    "ListState",
    "MapState",
    "OperatorListState",
    "ReducingState",
    "Ttl",
    "ValueState",
]
