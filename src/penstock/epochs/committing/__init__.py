"""Making epochs durable and visible, and keeping the storage small."""
