"""Object storage: its clients, and how artifacts lie in it."""
