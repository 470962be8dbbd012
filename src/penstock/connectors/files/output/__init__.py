"""From records to files: names, shapes of records, rows into columns or lines, and the files being written.

Used by the sink and its writers only.
"""
