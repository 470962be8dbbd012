"""The client of the HTTP API, sync and async. Needs `httpx`, of the extra `penstock[server]`."""
