"""The trace step: compiles a corpus with the default heuristic and keeps every decision with its features."""
