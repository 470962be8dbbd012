"""What a person writes: the environment, streams, keyed and windowed streams, which build a plan; and a job from outside.

`stream`, `keyed` and `windowed` only make plan nodes from definitions: they know nothing of what runs them, which import-linter
checks. `environment` hands the plan to `running/`; `job` is for any process that looks at a job, or controls it.
"""
