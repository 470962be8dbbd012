"""The epoch loop: plans what an epoch reads, has it run, makes it durable. No Spark here; decisions are pure functions.

    starting/ take over  →  (planning/ what next  →  executor  →  planning/ check, merge  →  committing/)*  →  stop_requests

`availability/` says who drives a job, and who takes over. Imports `compile/`, `jobs/`, the job and messages of `runtime/`; never
an executor.
"""
