"""Windows over columns: declared aggregates of aligned event-time windows, without a Python object for each record.

    batch ─→ partial ─→ key_by ─→ merge ─→ results
             before the exchange: a row       in state: chunks of rows,
             for each (key, slice)            by slice and key group

A *slice* is a stretch of time that no window cuts; windows are made of slices. `measures` are the aggregates on vectors.
"""
