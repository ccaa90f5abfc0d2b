"""Benchmarks: how many instructions built programs execute."""
