"""Exact credit of decisions, measured by compiling again with a decision flipped."""
