"""How the data that crosses a step border looks on disk."""
