"""Collecting: the records of a stream as a Python list on the driver."""

from penstock.connectors.collecting.sink import Collected, CollectSink

__all__ = ["CollectSink", "Collected"]
