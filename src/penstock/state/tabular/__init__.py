"""Columns that people can read, in Arrow, made of stored bytes, and back."""
