"""Has moved to `penstock.state.stores.store_registry`: see `penstock.moved`."""

from penstock.moved import forward

__getattr__ = forward(__name__)
