"""Running a retained epoch again: from the snapshot before it and the same input, without touching the job.

    choose the epoch → load its program → run it on the inline executor, traced → compare with what was committed → show

Everything that is written goes to a temporary folder; sinks are replaced by ones that only remember what they were given.
"""
