"""Window joins and co-groups: records of both sides that are of one key and in one window."""
