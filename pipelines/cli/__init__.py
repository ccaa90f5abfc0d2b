"""The command `mlgo`."""
