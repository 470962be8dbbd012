"""Spark's own sources as sources: a Structured Streaming query, or a batch DataFrame.

Spark reads; what it read is written as Parquet to the job's storage, and from there an epoch reads it, as often as need be. Here
and in `executors.spark` pyspark may be imported, on the driver only.
"""
