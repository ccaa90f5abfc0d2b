"""Runners of local steps: processes or containers."""
