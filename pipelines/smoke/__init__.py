"""A pipeline of small checks that tells in minutes what works on a server, before a run needs it for hours."""
