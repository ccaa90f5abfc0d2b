"""Chooses the object storage of a URI by its scheme."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from components.platform.storage.object_storage.gcs import GcsStore
from components.platform.storage.object_storage.kfp_local import KfpLocalStore
from components.platform.storage.object_storage.object_store import ObjectStore
from components.platform.storage.object_storage.s3 import S3Store
from components.platform.storage.uri import GS, S3, ObjectUri


def store_of(uri: ObjectUri) -> ObjectStore:
    """Return the object storage of a URI; makes no request."""
    stores: dict[str, Callable[[], ObjectStore]] = {GS: GcsStore, S3: S3Store}
    return stores.get(uri.scheme, KfpLocalStore)()


def server_time(uri: ObjectUri) -> datetime:
    """Return the time of the server of `uri`."""
    return store_of(uri).server_time(uri)
