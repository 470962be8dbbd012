"""Windows: which records belong together, when a result is due, and how it is computed.

    assigner: windows of a record       trigger: when to emit       evictor: what to leave out       aggregates: what to emit

Definitions are frozen and picklable; `operator` is the logic in a worker. May import the runtime, as connectors do.
"""
