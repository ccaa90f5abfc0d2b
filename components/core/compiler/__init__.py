"""Compiles corpus modules and reads their output. No clang flag is spelled anywhere else."""
