"""Compiles the pipeline to KFP's YAML. Runs in the environment `pipelines`, which has kfp."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from components.storage.directory import make_directory

HEADER = "# Made by `mlgo pipeline compile`. Images are names here; what runs it puts digests in their place.\n"


def compile_pipeline(output: Path) -> None:
    """Writes the compiled pipeline to `output`, whole or not at all."""
    from kfp import compiler

    from pipelines.training import training_pipeline

    make_directory(output.parent, output)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".compile-") as scratch:
        made = Path(scratch, "pipeline.yaml")
        compiler.Compiler().compile(training_pipeline, str(made))
        text = made.read_text(encoding="utf-8")
        # The version of kfp's compiler is not the pipeline's.
        made.write_text(HEADER + text, encoding="utf-8")
        os.replace(made, output)
