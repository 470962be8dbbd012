"""Joins of two whole streams, and steps that correct their results: they emit changes where they must."""
