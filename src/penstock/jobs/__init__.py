"""What a job's storage says, without driving the job: paths, terms, manifests, status, requests, lineage, pins."""
