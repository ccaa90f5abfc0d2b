"""Compiles the pipeline to KFP's YAML. Runs in the environment `pipelines`, which has kfp."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from components.console import UserError

HEADER = "# Made by `mlgo pipeline compile`. Images are names here; what runs it puts digests in their place.\n"


def compile_pipeline(output: Path) -> None:
    """Writes the compiled pipeline to `output`, whole or not at all. UserError if kfp is not in this environment."""
    try:
        from kfp import compiler
    except ImportError:
        raise UserError(
            "kfp is not installed in this environment", "make setup-pipelines, or pip install mlgo-pipeline[pipelines]"
        ) from None
    from pipelines.training import training_pipeline

    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".compile-") as scratch:
        made = Path(scratch, "pipeline.yaml")
        compiler.Compiler().compile(training_pipeline, str(made))
        text = made.read_text(encoding="utf-8")
        # The version of kfp's compiler is not the pipeline's.
        made.write_text(HEADER + text, encoding="utf-8")
        os.replace(made, output)
