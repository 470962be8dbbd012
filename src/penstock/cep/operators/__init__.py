"""Patterns in a worker: rows that wait for their time, the matches of each key, what is kept of them in state."""
