"""Run a compiled pipeline on this machine."""
