"""The command `mlgo policy`: explains, compares, exports and imports policies."""
