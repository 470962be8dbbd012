"""From a program, and from what the one before it left, to what runs: rewrites, compatibility, layout, stages, explain."""
