"""What went wrong, said so that it helps: kinds of failures, tracebacks without our own frames, how the program was started,
and secrets masked. Imports `errors` only.
"""
