"""Starting from a snapshot: what a name means, whether it would work, and the start itself."""
