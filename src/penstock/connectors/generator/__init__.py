"""Events made by a function of their number: deterministic, replayable, at a rate or as fast as admitted."""
