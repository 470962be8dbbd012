"""Savepoints made from others, or from data: edited, built, regrouped."""
