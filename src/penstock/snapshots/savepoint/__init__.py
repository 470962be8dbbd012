"""Savepoints: their form, and how one is made of a job that runs or does not."""
