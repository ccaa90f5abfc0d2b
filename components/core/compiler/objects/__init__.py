"""Readers of ELF objects: sections, unwind tables, and the size of each function."""
