"""Names that stand for the images in a compiled pipeline until `mlgo pipeline` puts digests in their place."""

from __future__ import annotations

IMAGES = {"toolchain": "mlgo-toolchain", "training": "mlgo-training", "cluster": "mlgo-cluster"}
"""Key of an image, which is its folder of docker/ -> its name in the pipeline."""
CLUSTER = "cluster"
"""The image of a Ray cluster's nodes: no step runs in it, and only who trains on a cluster needs it."""
STEPS = tuple(key for key in IMAGES if key != CLUSTER)
"""The images that steps run in."""
CLUSTER_VARIABLE = "MLGO_CLUSTER_IMAGE"
"""By which the pipeline tells the PPO step the digest of that image."""
