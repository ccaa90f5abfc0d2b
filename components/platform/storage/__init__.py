"""Artifacts: atomic publication, checksums, manifests."""

from components.platform.storage.manifest import (
    MANIFEST,
    digest,
    read_manifest,
    require_artifact,
    verify,
    write_manifest,
)
from components.platform.storage.publish import discard, publish

__all__ = ["MANIFEST", "digest", "discard", "publish", "read_manifest", "require_artifact", "verify", "write_manifest"]
