"""Has moved to `penstock.state.entries.layout`: see `penstock.moved`."""

from penstock.moved import forward

__getattr__ = forward(__name__)
