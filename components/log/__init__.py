"""The command `mlgo log`: the decisions in a training log as text and tables."""
