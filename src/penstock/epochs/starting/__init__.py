"""How a driver starts on what is there: take-over, migration, rewind, rescaling; and the ends of a job."""
