"""What a person writes: the environment, streams and keyed streams. They build plan nodes and do nothing else."""
