"""Files as a sink: rows into files, and the log that says which of them are published."""
