"""Debian source packages, built by their own rules with clang in place of GCC, in temporary roots."""
