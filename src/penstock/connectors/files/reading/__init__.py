"""Files as a source: which there are, where they may be cut, how they are read."""
