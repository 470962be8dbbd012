"""Printing: the records of a stream on the driver's standard output."""

from penstock.connectors.printing.sink import PrintSink

__all__ = ["PrintSink"]
