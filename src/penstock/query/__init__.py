"""Queries: what a job has committed, read where it is; without HTTP (`StateReader`), and over it (`Client`, `AsyncClient`).

It reads the job's storage and local stores, and imports nothing that drives a job.
"""

from penstock.query.client.decoding import Answered, Event
from penstock.query.client.http_clients import AsyncClient, Client
from penstock.query.embedded import EmbeddedReader
from penstock.query.windows_of_key import Closed, WindowOfKey

__all__ = ["Answered", "AsyncClient", "Client", "Closed", "EmbeddedReader", "Event", "WindowOfKey"]
