"""RDD stages built with as few calls to the JVM as possible.

PySpark's `mapPartitionsWithIndex(...).partitionBy(...)` needs about fifty round trips for an epoch of two stages, a third of
what an empty epoch takes. The same Java objects are made here directly, with everything that does not change made once; and
frames cross as raw bytes instead of being pickled in batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import SparkContext
from pyspark.serializers import CloudPickleSerializer, NoOpSerializer
from pyspark.util import _load_from_socket

_PARTITIONER_ID = 7

Function = Any
JavaRDD = Any
ScalaRDD = Any


class Bridge:
    """The JVM side of one Spark context, for jobs of one parallelism."""

    def __init__(self, context: SparkContext, parallelism: int) -> None:
        self._context = context
        jvm: Any = context._jvm
        self._function = jvm.SimplePythonFunction
        self._python_rdd = jvm.PythonRDD
        self._pairwise = jvm.PairwiseRDD
        self._levels = jvm.org.apache.spark.api.java.StorageLevels
        self._partitioner = jvm.PythonPartitioner(parallelism, _PARTITIONER_ID)
        self._environment = jvm.java.util.HashMap()
        for name, value in context.environment.items():
            self._environment.put(name, value)
        self._includes = jvm.java.util.ArrayList()
        for include in context._python_includes or ():
            self._includes.add(include)
        self._broadcasts = jvm.java.util.ArrayList()
        self._dump: Callable[[Any], bytes] = CloudPickleSerializer().dumps  # type: ignore[no-untyped-call]
        self._raw = NoOpSerializer()
        first: Any = context.parallelize([], parallelism)
        self._first_reader = first._jrdd_deserializer
        self.start: ScalaRDD = first._jrdd.rdd()

    def broadcast(self, data: bytes) -> Any:
        """Bytes that every stage's function may refer to."""
        variable = self._context.broadcast(data)
        self._broadcasts.add(variable._jbroadcast)
        return variable

    def stage(self, before: ScalaRDD, function: Function, *, first: bool) -> ScalaRDD:
        """A Python stage over `before`. It claims no partitioner: Spark leaves out a shuffle between two equal ones."""
        context = self._context
        command = self._dump((function, None, self._first_reader if first else self._raw, self._raw))
        context._pickled_broadcast_vars.clear()
        wrapped = self._function(
            bytearray(command),
            self._environment,
            self._includes,
            context.pythonExec,
            context.pythonVer,
            self._broadcasts,
            context._javaAccumulator,
        )
        return self._python_rdd(before, wrapped, False, False)

    def shuffled(self, stage: ScalaRDD) -> JavaRDD:
        """What a stage of (target, bytes) sent, by target."""
        return self._python_rdd.valueOfPair(self._pairwise(stage).asJavaPairRDD().partitionBy(self._partitioner))

    def collect(self, stage: ScalaRDD) -> list[bytes]:
        """Run the job; the bytes that the last stage yielded."""
        with _load_from_socket(self._python_rdd.collectAndServe(stage), self._raw) as reports:
            return list(reports)

    def in_memory(self) -> Any:
        return self._levels.MEMORY_ONLY
