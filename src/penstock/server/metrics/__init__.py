"""What a server tells of jobs and of itself: its own counts, and all in Prometheus' format."""
