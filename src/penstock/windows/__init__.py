"""Windows: which records belong together, when a result is due, and how it is computed.

    assigner: windows of a record       trigger: when to emit       evictor: what to leave out       aggregates: what to emit

`lower` makes the definition (`step`) of what `window(...)` was given; `operators/` is the logic in a worker, `columnar/` the same
over columns. Imports `plan/`, `runtime/`, `state/` and `timing/`.
"""
