"""Training clangs that others built, in LLVM's own development mode."""
