"""Checkpoints of a training, and the lease on its root directory."""
