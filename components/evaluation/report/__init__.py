"""Reports of a finished evaluation: HTML, terminal, CSV, model card."""
