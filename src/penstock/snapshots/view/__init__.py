"""Snapshots, looked into: what they hold, one key of it, which epochs a job keeps."""
