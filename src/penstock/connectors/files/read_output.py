"""Has moved to `penstock.connectors.files.reading.read_output`: see `penstock.moved`."""

from penstock.moved import forward

__getattr__ = forward(__name__)
