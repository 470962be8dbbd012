"""A job driven in this process, from the first look at its storage to its result: one loop after another, for as long as it
is rescaled; Ctrl-C and SIGTERM; the deadline of a stop. Imports `epochs/`, and `snapshots/restore/` for starts from a snapshot.
"""
