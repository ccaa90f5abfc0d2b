"""Names that stand for the images in a compiled pipeline until `mlgo pipeline` puts digests in their place."""

from __future__ import annotations

IMAGES = {"toolchain": "mlgo-toolchain", "training": "mlgo-training"}
"""Key of an image, which is its folder of docker/ -> its name in the pipeline."""
