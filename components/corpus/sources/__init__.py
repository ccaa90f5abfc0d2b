"""Sources of modules: builds, recipes, Debian packages, bitcode files, other corpora."""
