"""What runs in the workers: stage tasks, operator chains and the frames between stages. Plain Python and Arrow; no Spark here.

`job` and `messages` are what the driver and a task say to each other. Imports `plan/` for definitions, `state/`, `timing/`, the
protocol of connectors, and the records of `jobs/`.
"""
