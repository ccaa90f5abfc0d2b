"""Whole projects: built twice, and compared as they are linked."""
