"""Placeholder names of the images in a compiled pipeline, which `mlgo pipeline` replaces by digests; their command."""

from __future__ import annotations

IMAGES = {
    "toolchain": "mlgo-toolchain",
    "sdk": "mlgo-sdk",
    "training": "mlgo-training",
    "cluster": "mlgo-cluster",
    "clang": "mlgo-clang",
}
"""Key of an image, which is its folder in docker/ -> its name in the pipeline."""
COMMAND = ("python", "-m", "components.platform.launcher")
"""The command of every step in these images; its arguments name the step."""
CLUSTER = "cluster"
"""The image of a Ray cluster's nodes: no step runs in it; only training on a cluster needs it."""
CLANG = "clang"
"""The image with the pretrained policies' clang, of the pipeline `shrink` and of users who have docker only."""
STEPS = tuple(key for key in IMAGES if key not in (CLUSTER, CLANG))
"""The images that a training's steps run in."""
CLUSTER_VARIABLE = "MLGO_CLUSTER_IMAGE"
"""Environment variable by which the pipeline passes the digest of that image to the training step."""
