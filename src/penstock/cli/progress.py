"""Has moved to `penstock.cli.screen.progress`: see `penstock.moved`."""

from penstock.moved import forward

__getattr__ = forward(__name__)
