"""Readers of what a compile logs: decisions, callsites, scores, and remarks."""
