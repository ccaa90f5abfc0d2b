"""Extraction of bitcode and command lines from objects."""
