"""How a driver starts on what is there: the take-over, migration of state, rewind to an earlier epoch, replacing output,
rescaling, draining; and the ends of a job on the driver, its enumerators and committers.
"""
