"""Vertex AI, experimental: no real service has been asked. Imported by choose_server and parse_registry alone."""
