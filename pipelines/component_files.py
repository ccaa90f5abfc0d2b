"""Compile the steps to component files, each for use in pipelines of others. Imports kfp, as training.py.

A component file is what kfp.components.load_component_from_file reads. It names its image by digest, and its parameters
have the defaults of the pipeline that the step belongs to; "" makes the step use its own default. Next to it is a
metadata.yaml: name, stability, dependencies and tags as in the repository kubeflow/pipelines-components, and image,
inputs, outputs and resources.
"""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from kfp import compiler

from components.corpus.component import corpus
from components.evaluation.component import evaluation, release_report, select_policy
from components.platform.launcher.registry import TASKS
from components.platform.storage.directory import make_directory
from components.platform.storage.output_files import replace_text
from components.ppo.component import ppo
from components.shrink.component import shrink
from components.toolchain.component import toolchain_release, toolchain_sdk, toolchain_training
from components.trace.component import trace
from components.tune.component import tune
from components.vocab.component import vocab
from components.warmstart.component import warmstart
from pipelines.images import Image
from pipelines.spec import COMPILED_PIPELINES, containers, load_spec
from pipelines.spec_changes import with_digests

_TRAINING_STEPS = (
    *(toolchain_training, corpus, trace, vocab, warmstart, ppo, evaluation, select_policy),
    *(toolchain_release, release_report, tune),
)
COMPONENTS = {
    one.component_spec.name: (one, pipeline)
    for pipeline, ones in {"training": _TRAINING_STEPS, "sdk": (toolchain_sdk,), "shrink": (shrink,)}.items()
    for one in ones
}
"""Name of a step's task -> its component, and the pipeline that it comes from."""
_PARAMETERS = ("String", "Integer", "Float")
_ALPHA = ("toolchain-sdk", "tune")
"""Never run on a real server."""


def compile_components(output: Path, images: Mapping[str, Image]) -> list[str]:
    """Write component.yaml and metadata.yaml of each step whose image was pushed to `output`/NAME; return the names.

    Raises:
        UserError: no image of a step was pushed.
    """
    references = {key: image.reference for key, image in images.items()}
    pushed = [name for name in COMPONENTS if "@sha256:" in references.get(TASKS[name].image, "")]
    specs = {name: _component(name, images) for name in pushed or COMPONENTS}  # without one, `with_digests` refuses
    for name, spec in specs.items():
        make_directory(output / name, output)
        header = "# Made by `mlgo pipeline components`.\n"
        replace_text(output / name / "component.yaml", header + yaml.safe_dump(spec, sort_keys=False))
        replace_text(output / name / "metadata.yaml", header + yaml.safe_dump(_metadata(name, spec), sort_keys=False))
    return pushed


def _component(name: str, images: Mapping[str, Image]) -> dict[str, Any]:
    """Return the PipelineSpec of a component, whose root is its task, with digests and defaults."""
    component, pipeline = COMPONENTS[name]
    component = copy.deepcopy(component)  # the pipelines, which may be compiled later, pass all arguments
    defaults = _defaults(pipeline)
    for key, described in component.component_spec.inputs.items():
        default = defaults.get(key, "" if described.type == "String" else None)
        if described.type in _PARAMETERS and default is not None:
            described.default, described.optional = default, True
    with tempfile.TemporaryDirectory() as scratch:
        compiler.Compiler().compile(component, path := str(Path(scratch, "component.yaml")))
        spec = with_digests(load_spec(Path(path)), images, ray=None)
    for _label, container in containers(spec):
        # kfp 2.17 cannot use a loaded component that has variables.
        variables = [f"{variable['name']}={variable['value']}" for variable in container.pop("env", ())]
        container["command"] = [*(["env", *variables] if variables else []), *container["command"]]
    return spec


@functools.cache
def _defaults(pipeline: str) -> dict[str, Any]:
    """Return the default of each parameter of a pipeline; None: it is required."""
    parameters = load_spec(COMPILED_PIPELINES[pipeline])["root"]["inputDefinitions"]["parameters"]
    return {name: one.get("defaultValue") for name, one in parameters.items()}


def _metadata(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    task, root = TASKS[name], spec["root"]
    ((_label, container),) = containers(spec)
    return {
        "name": name,
        "stability": "alpha" if name in _ALPHA else "beta",
        "dependencies": {"kubeflow": [{"name": "Pipelines", "version": spec["sdkVersion"].replace("kfp-", ">=")}]},
        "tags": ["llvm", "mlgo", task.step],
        "image": container["image"],
        "inputs": _definitions(root.get("inputDefinitions", {})),
        "outputs": _definitions(root["outputDefinitions"]),
        "resources": {"cpus": task.cpus, "memory_gb": task.memory_gb, "time_limit_hours": task.hours},
    }


def _definitions(definitions: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of each input or output -> its type and, if it is optional, its default."""
    artifacts = {name: one["artifactType"]["schemaTitle"] for name, one in definitions.get("artifacts", {}).items()}
    parameters = {
        name: one["parameterType"] + (f", default {one['defaultValue']!r}" if "defaultValue" in one else "")
        for name, one in definitions.get("parameters", {}).items()
    }
    return artifacts | parameters
