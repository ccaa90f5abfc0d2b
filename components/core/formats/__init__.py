"""On-disk formats of the data that crosses a step border."""
