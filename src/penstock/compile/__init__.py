"""From a program, and from what the one before it left, to what runs. Nothing here drives a job.

    programs: find the plan → rewrites → compatibility, renames, source_claims: judge → stages: cut → layout: place the state

`explain` shows the outcome. Imports `plan/`, definitions of `windows/`, `runtime/` and `connectors/`, and the records of `jobs/`.
"""
