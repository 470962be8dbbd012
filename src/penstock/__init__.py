"""Stateful stream processing in Python, on Spark."""

__version__ = "0.1.0"
