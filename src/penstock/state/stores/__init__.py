"""Local stores: the committed state of a stage partition on a host, a cache of the durable files."""
