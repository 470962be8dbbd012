"""Enrichment: each record gets the rows of a table that have its key. The table is small enough for every worker."""
