"""A job driven in this process, from the first look at its storage to its result."""
