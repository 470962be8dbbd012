"""Loops in a task: how often a record has been through one, what is in it between epochs, and turns within an epoch."""
