"""Concepts that the steps share."""
