"""Checkpoints of a training, and its fingerprint."""
