"""The epoch loop: decides what an epoch reads, has it run, makes it durable. No Spark here; decisions are pure functions."""
