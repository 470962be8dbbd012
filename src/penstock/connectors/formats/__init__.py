"""File formats as batches: Parquet, CSV, JSON, lines of text; what a row is to become."""
