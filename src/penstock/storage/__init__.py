"""Durable storage behind a URI: a local folder, or a prefix of an S3 bucket.

One contract, `Storage`, for everything that must survive a crash: manifests, state files, savepoints, staged output. Imports
no other package.
"""

from penstock.storage.local import LocalStorage, private
from penstock.storage.protocol import Listed, Storage
from penstock.storage.uri import open_named, open_storage

__all__ = ["Listed", "LocalStorage", "Storage", "open_named", "open_storage", "private"]
