"""Epochs as Spark jobs: the session, the Java underneath it, the stages as RDDs.

The only package, with the Spark feed among the connectors, that imports `pyspark`.
"""
