"""Entries of state as Arrow columns that people can read, and back."""
