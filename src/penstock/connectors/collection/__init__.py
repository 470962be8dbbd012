"""A collection of the program's own as a bounded source."""
