"""The core operators: source, stateless steps, keyed process, union, sink. Everything else is composed from them.

Each module has the *definition* (frozen, picklable, part of the plan) and the *operator* (logic in the worker). Operators push:
batches and watermarks go in at `on_batch` and `on_watermark`, and come out at `outputs`.
"""
