"""Snapshots that people operate: savepoints, what is in them, and starting from them.

Built on committed epochs only, so nothing here needs a running driver. May import `penstock.epochs` and what is below it.
"""
