"""Starts, supervises and confines child processes, and kills them together with their descendants."""
