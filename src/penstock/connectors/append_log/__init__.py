"""A log in the job's storage that applications append records to, and the source that reads it.

`log` appends, `source` reads, `segment` is the format. The log knows nothing of jobs or of HTTP.
"""
