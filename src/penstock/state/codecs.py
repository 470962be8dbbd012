"""Has moved to `penstock.state.encoding.codecs`: see `penstock.moved`."""

from penstock.moved import forward

__getattr__ = forward(__name__)
