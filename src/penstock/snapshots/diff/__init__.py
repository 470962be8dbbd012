"""Two snapshots, or what two jobs have published, compared."""
