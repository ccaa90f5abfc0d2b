"""The parameters of the pipelines: their table, the rules between them, and what they may name on a server."""
