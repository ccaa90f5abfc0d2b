"""The step of the pipeline that judges and promotes, as the launcher runs it: `mlgo retrain promote`."""

from __future__ import annotations

from components.platform.command import run_step
from pipelines.cli.retrain import promote

if __name__ == "__main__":
    run_step(promote)
