"""What `benchmarks/kafka.py` measures: `windows`, `decoding` and `latency`, on a broker of its own."""

from harness.kafka.broker import Broker
from harness.kafka.load import Latency, Load

__all__ = ["Broker", "Latency", "Load"]
