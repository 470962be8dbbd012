"""Making epochs durable and visible, in order, beside the ones that run; and keeping the storage small.

`commit_protocol` has the steps of a commit, `group_commit` takes them for all epochs that wait. Retention, orphans and compaction
remove and merge files.
"""
