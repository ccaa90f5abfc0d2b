"""Debian source packages, built by their own rules with clang in place of GCC, in roots that are thrown away."""
