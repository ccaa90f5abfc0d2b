"""Builds a user's code by the smallest of several builds: `mlgo shrink -- COMMAND`."""
