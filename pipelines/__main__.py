"""`python -m pipelines` is `mlgo`."""

from pipelines.cli.main import main

main()
