"""What a job does and did, as its driver tells it, for whoever looks."""
