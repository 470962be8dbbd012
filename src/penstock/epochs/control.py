"""Has moved to `penstock.jobs.requests`: see `penstock.moved`."""

from penstock.moved import forward

__getattr__ = forward(__name__)
