"""The RayJob that runs a training on a cluster: its manifest, its submission and its log."""
