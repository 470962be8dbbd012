"""Queries: what a job has committed, read where it is; without HTTP (`StateReader`), and over it (`Client`).

It reads the job's storage and local stores, and imports nothing that drives a job.
"""
