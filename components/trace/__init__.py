"""The trace step: compiles a corpus with the default heuristic and records every decision with its features."""
