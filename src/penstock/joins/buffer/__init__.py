"""Records of one side of a join that wait for partners, over columns: as rows, by stretches of time, in memory and in state."""
