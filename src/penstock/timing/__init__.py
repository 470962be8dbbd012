"""Event time and processing time: durations, watermark strategies, watermark combination.

Inside, a time is an `int` of milliseconds since the Unix epoch; `timedelta` and `datetime` exist only at the API. Imports no
other package.
"""

from penstock.timing.watermarks import WatermarkGenerator, Watermarks

__all__ = ["WatermarkGenerator", "Watermarks"]
