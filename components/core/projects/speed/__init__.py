"""Instructions and processor time of programs."""
