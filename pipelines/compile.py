"""Compile a pipeline to KFP's YAML, in the environment `pipelines`, which has kfp."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from components.platform.storage.directory import make_directory
from components.platform.storage.input_files import parse_yaml
from pipelines.images import Image
from pipelines.parameters.tables import TABLES
from pipelines.spec import load_spec
from pipelines.spec_changes import with_digests, without_literals

HEADER = "# Made by `mlgo pipeline compile`. Images are names here; what runs it puts digests in their place.\n"

DIGESTS_HEADER = "# Made by `mlgo pipeline compile --images`.\n"


def compile_pipeline(
    name: str, output: Path, images: Mapping[str, Image] | None = None, version_name: str = "", namespace: str = ""
) -> None:
    """Write a compiled pipeline to `output` atomically. UserError if an image was not pushed.

    Args:
        name: a key of pipelines.spec.COMPILED_PIPELINES.
        images: pushed images, by whose digests the pipeline names them; None for names.
        version_name: of a version that is written, with `images`, as the objects Pipeline and PipelineVersion of KFP
            2.17; "" for the pipeline itself.
        namespace: of these objects; "" for that of who applies them.
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
        manifests = compiler.KubernetesManifestOptions(
            pipeline_version_name=version_name, namespace=namespace, include_pipeline_manifest=True
        )
        compiler.Compiler().compile(
            pipeline,
            str(compiled),
            kubernetes_manifest_options=manifests,
            kubernetes_manifest_format=bool(version_name),
        )
        # Headers of our own: the version of kfp's compiler is not the pipeline's version.
        text = HEADER + compiled.read_text(encoding="utf-8")
        if version_name and images is not None:
            documents = parse_yaml(text, str(compiled), "this is a bug")
            version = documents[-1]["spec"]
            version["pipelineSpec"] = with_digests(version["pipelineSpec"], images, ray=None)
            text = DIGESTS_HEADER + yaml.safe_dump_all(documents)
        elif images is not None:
            spec = without_literals(with_digests(load_spec(compiled), images, ray=None))  # for servers of each version
            text = DIGESTS_HEADER + yaml.safe_dump(spec)
        compiled.write_text(text, encoding="utf-8")
        os.replace(compiled, output)
