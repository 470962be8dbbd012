"""Who drives a job, and who takes over: the live driver, standbys, the mirror."""
