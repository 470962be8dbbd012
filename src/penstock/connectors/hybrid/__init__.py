"""History, then what is live: one source after another, as one. See `source`."""
