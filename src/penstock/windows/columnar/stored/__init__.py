"""Stored chunks of windows over columns as a kind of state: as columns that people can read, as rows, by other key groups."""
