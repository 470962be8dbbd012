"""Who runs an epoch: `inline` in this process, `spark` as one RDD job.

Both run the same stage tasks and give the same results. May import everything that a task needs (`runtime` and below) and
nothing of what a person writes or operates.
"""
