"""Who drives a job, and who takes over: the holder of the lease, the check for a live driver, standbys, and the mirror of a
job in another place.
"""
