"""`python -m pipelines` is `mlgo`."""

from pipelines.cli import main

main()
