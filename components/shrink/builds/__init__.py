"""Builds of the user's code by other compilers, and the files that they linked."""
