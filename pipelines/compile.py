"""Compile a pipeline to KFP's YAML, in the environment `pipelines`, which has kfp."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from components.core.storage.directory import make_directory

HEADER = "# Made by `mlgo pipeline compile`. Images are names here; what runs it puts digests in their place.\n"


def compile_pipeline(name: str, output: Path) -> None:
    """Write a compiled pipeline to `output` atomically.

    Args:
        name: a key of pipelines.spec.COMPILED_PIPELINES.
    """
    from kfp import compiler

    from pipelines.sdk import sdk_pipeline
    from pipelines.training import training_pipeline

    pipeline = {"training": training_pipeline, "sdk": sdk_pipeline}[name]
    make_directory(output.parent, output)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".compile-") as scratch:
        compiled = Path(scratch, "pipeline.yaml")
        compiler.Compiler().compile(pipeline, str(compiled))
        text = compiled.read_text(encoding="utf-8")
        # Keep a header of our own: the version of kfp's compiler is not the pipeline's version.
        compiled.write_text(HEADER + text, encoding="utf-8")
        os.replace(compiled, output)
