"""Commands about sources and sinks."""
