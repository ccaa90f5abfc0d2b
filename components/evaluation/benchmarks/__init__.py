"""Benchmarks: the instructions that built programs execute."""
