"""Keyed state: what a value and a key look like as bytes (`codecs`, `layout`, `key_groups`), the durable files an epoch
leaves behind (`files`), and the local store a task reads from (`store`, `local`). The store is a cache of the files: it can
always be rebuilt from them. Imports only `penstock.errors`, `penstock.ids`, and the storage protocol.
"""
