"""Steps that ask other systems: many calls at once, awaited in an event loop that a worker keeps from epoch to epoch.

    operator ── questions ──→ asking ── one after another, `capacity` at once ──→ caller ── timeout, retries ──→ user's function
        ↑                                                                            │
        └──────────── batches whose answers are there, in order or as they come ─────┘

Laws:
- What a batch became is passed on before a watermark that came after it, and after one that came before it.
- In order: records go on in the order in which they came. Where a step that sees order follows, they do in any case.
- When the input of the epoch is over, all answers are waited for: no snapshot has a call in flight.
- No more than `capacity` calls of a task are in flight; while there are, nothing more is read.
"""
