"""The durable form of state: immutable sorted files, read, merged and copied."""
