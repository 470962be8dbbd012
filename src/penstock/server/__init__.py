"""The HTTP API of jobs: thin routes over `query/` and `api/`, behind a guard. Needs the extra `penstock[server]`.

A module of routes is a tuple of endpoints, named in `routes/__init__`. What an endpoint declares is what the guard enforces, and
what the OpenAPI document says.
"""
