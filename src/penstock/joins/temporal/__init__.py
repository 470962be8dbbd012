"""Temporal joins: each record meets the version of a row that was valid at its event time."""
