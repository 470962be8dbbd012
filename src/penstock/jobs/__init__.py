"""What a job's storage says, without driving the job: paths, job and terms, manifests, status, requests, lineage, pins, leases.

The command line, snapshots and the engine stand on it; who writes most of it, and when, is decided in `epochs/`. Imports
`storage/`, the references of `state/`'s files, and the protocol of connectors.
"""
