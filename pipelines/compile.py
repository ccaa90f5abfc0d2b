"""Compile a pipeline to KFP's YAML, in the environment `pipelines`, which has kfp."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from components.platform.storage.directory import make_directory
from pipelines.images import Image
from pipelines.parameters.tables import TABLES
from pipelines.spec import load_spec
from pipelines.spec_changes import with_digests, without_literals

HEADER = "# Made by `mlgo pipeline compile`. Images are names here; what runs it puts digests in their place.\n"

DIGESTS_HEADER = "# Made by `mlgo pipeline compile --images`.\n"


@dataclass(frozen=True)
class PipelineVersion:
    """A version of a pipeline as an object of Kubernetes, in `namespace`; "" for that of who applies it."""

    name: str
    namespace: str


def compile_pipeline(
    name: str, output: Path, images: Mapping[str, Image] | None = None, version: PipelineVersion | None = None
) -> None:
    """Write a compiled pipeline to `output` atomically. UserError if an image was not pushed.

    Args:
        name: a key of pipelines.spec.COMPILED_PIPELINES.
        images: pushed images, by whose digests the pipeline names them; None for names.
        version: written as the objects Pipeline and PipelineVersion of KFP 2.17; None for the pipeline itself.
    """
    from google.protobuf.struct_pb2 import Value
    from kfp import compiler

    from pipelines.sdk import sdk_pipeline
    from pipelines.shrink import shrink_pipeline
    from pipelines.smoke.component import smoke_pipeline
    from pipelines.training import training_pipeline

    pipelines = {
        "training": training_pipeline,
        "sdk": sdk_pipeline,
        "shrink": shrink_pipeline,
        "smoke": smoke_pipeline,
    }
    pipeline = pipelines[name]
    definitions = pipeline.pipeline_spec.root.input_definitions.parameters
    for parameter in TABLES[name]:
        definition = definitions[parameter.name]
        definition.description = parameter.describe()
        # kfp 2.17 does not compile typing.Literal, but its format and its server have the field.
        definition.literals.extend(Value(string_value=value) for value in parameter.literals)
    make_directory(output.parent, output)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".compile-") as scratch:
        compiled = Path(scratch, "pipeline.yaml")
        compiler.Compiler().compile(pipeline, str(compiled))
        # Headers of our own: the version of kfp's compiler is not the pipeline's version.
        text = HEADER + compiled.read_text(encoding="utf-8")
        if images is not None:
            spec = with_digests(load_spec(compiled), images, ray=None)
            if version is None:
                text = DIGESTS_HEADER + yaml.safe_dump(without_literals(spec))  # for servers of each version
            else:
                text = DIGESTS_HEADER + yaml.safe_dump_all(_manifests(spec, version))
        compiled.write_text(text, encoding="utf-8")
        os.replace(compiled, output)


def _manifests(spec: Mapping[str, Any], version: PipelineVersion) -> list[dict[str, Any]]:
    """Return what kfp's compiler writes with `kubernetes_manifest_format`, which puts no digests in place of names."""
    name = spec["pipelineInfo"]["name"]
    described = {"displayName": name, "description": spec["pipelineInfo"]["description"]}
    versioned = {**described, "displayName": version.name, "pipelineName": name, "pipelineSpec": dict(spec)}
    namespace = {"namespace": version.namespace} if version.namespace else {}
    return [
        {
            "apiVersion": "pipelines.kubeflow.org/v2beta1",
            "kind": kind,
            "metadata": {"name": own_name, **namespace},
            "spec": content,
        }
        for kind, own_name, content in (("Pipeline", name, described), ("PipelineVersion", version.name, versioned))
    ]
