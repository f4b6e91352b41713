"""The object store: one interface, a folder and S3 behind it."""

from __future__ import annotations

from permille.mesh.store.object_store import ObjectInfo, ObjectStore, StoreUsage
from permille.mesh.store.store_url import open_store

__all__ = ["ObjectInfo", "ObjectStore", "StoreUsage", "open_store"]
