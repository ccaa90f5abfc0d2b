"""Whole projects: built twice; compares their linked binaries."""
