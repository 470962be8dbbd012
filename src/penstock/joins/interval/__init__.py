"""Interval joins: records of one key whose timestamps are no further apart than two bounds say."""
