"""Patterns as data, which change while a job runs: a broadcast stream adds, changes and removes them by id.

`json_form` writes and reads a pattern; `change` is what a record asks for, and what becomes of the rule set: pure. `step` is the
definition, `operator` runs all rules on one keyed stream. Conditions are expressions over columns: what is read is computed only.
"""
