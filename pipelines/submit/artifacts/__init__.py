"""Artifacts of runs on a server: the root that steps write to themselves, and what they have published."""
