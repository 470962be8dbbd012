"""Windows in a worker, record by record or a batch at a time."""
