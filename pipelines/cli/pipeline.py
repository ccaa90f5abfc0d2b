"""`mlgo pipeline compile | run`: compile the pipeline, run it on this machine. submit.py and runs.py have others."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from components.core.projects.option import find_database
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.processes.python_module import module_command
from components.platform.storage.replaceable import require_apart
from components.platform.storage.uri import USAGE, in_object_storage
from pipelines.cli.flags import IMAGES, OUTPUT, PARAMS, PARAMS_FILE, PIPELINE_ROOT, RUNNER
from pipelines.cli.setup import pipelines_environments
from pipelines.local.locations import artifact_digest, artifact_root
from pipelines.local.runners.runner import Runner
from pipelines.parameters.on_server import check_llvm_in_images, check_recipe_in_images
from pipelines.parameters.tables import BY_NAME
from pipelines.spec import COMPILED, COMPILED_PIPELINES, REPORT_STEP, builds_sdk, load_spec, used_images


def _compiled_pipeline(value: str) -> Any:
    """Convert the name of one of this project's pipelines, or the path of another compiled one, to a path."""
    return COMPILED_PIPELINES.get(value) or click.Path(path_type=Path, dir_okay=False).convert(value, None, None)


PIPELINE = click.option(
    "--pipeline",
    type=_compiled_pipeline,
    default="training",
    show_default=True,
    metavar=f"{'|'.join(COMPILED_PIPELINES)}|FILE",
    help="training; sdk: builds LLVM from source, for the parameter sdk of training; shrink: builds code smaller; "
    "smoke: tells what works on a server; or a compiled pipeline.",
)


@click.group("pipeline")
def pipeline_group() -> None:
    """Compile the pipeline, run it on this machine, or run it on Kubeflow Pipelines or Vertex AI.

    \b
    Examples:
      mlgo pipeline compile --output training.yaml
      mlgo pipeline run --runner docker --param recipe=tiny --param preset=tiny --output runs/tiny
      mlgo pipeline submit --host http://localhost:8080 --param recipe=demo --pipeline-root gs://my-bucket/kfp
      mlgo pipeline list --host http://localhost:8080
    """


@pipeline_group.command("compile", short_help="Compile the pipeline to KFP's YAML.")
@click.option(
    "--pipeline",
    type=click.Choice(sorted(COMPILED_PIPELINES)),
    default="training",
    show_default=True,
    help="training; sdk: builds LLVM from source; shrink: builds code smaller; smoke: tells what works on a server.",
)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="YAML file to write.")
@click.option(
    "--images",
    default="",
    metavar="FILE|NAME=REFERENCE,...",
    help="Pushed images, which the YAML names by registry and digest.  [default: names, which no server can pull]",
)
@click.option(
    "--version-name",
    default="",
    metavar="NAME",
    help="Write a version of this name as the objects Pipeline and PipelineVersion, for kubectl or GitOps.",
)
@click.option("--namespace", default="", help="Namespace in these objects.  [default: that of who applies them]")
def compile_command(pipeline: str, output: Path, images: str, version_name: str, namespace: str) -> None:
    """Compile pipelines/training.py, sdk.py or smoke/ to KFP's YAML; needs the environment `pipelines`.

    With --images any client of KFP or Vertex AI can submit the file; with --version-name, too, kubectl applies it.

    \b
    Examples:
      mlgo pipeline compile --output training.yaml
      mlgo pipeline compile --pipeline sdk --output sdk.yaml
      mlgo pipeline compile --images build/images.json --output training.yaml
      mlgo pipeline compile --images build/images.json --version-name training-7 --namespace kubeflow --output t.yaml
    """
    require_apart(output, "name a file elsewhere with --output")
    if version_name and not images:
        raise click.UsageError("--version-name needs --images: a server pulls by registry and digest")
    if namespace and not version_name:
        raise click.UsageError("--namespace needs --version-name")
    from components.platform.rayjob.spec import DNS_LABEL

    for option, value in (("--version-name", version_name), ("--namespace", namespace)):
        if value and not DNS_LABEL.fullmatch(value):
            raise click.UsageError(f"{option} {value}: use up to 63 of a-z, 0-9 and -, not - at an end")
    in_pipelines_environment()
    from pipelines.compile import compile_pipeline
    from pipelines.images import given_images

    compile_pipeline(pipeline, output, given_images(images) if images else None, version_name, namespace)
    say(f"compiled: {output}")


@pipeline_group.command("components", short_help="Write each step as a component for other pipelines.")
@click.option(
    "--images",
    default="build/images.json",
    show_default=True,
    metavar="FILE|NAME=REFERENCE,...",
    help="Pushed images, which the components name by registry and digest. A step without one is left out.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Directory to write to. Other files in it stay.",
)
def components_command(images: str, output: Path) -> None:
    """Write NAME/component.yaml, for kfp.components.load_component_from_file, and NAME/metadata.yaml of each step.

    \b
    Example:
      mlgo pipeline components --images build/images.json --output components
    """
    require_apart(output, "name a directory elsewhere with --output")
    in_pipelines_environment()
    from pipelines.component_files import compile_components
    from pipelines.images import given_images

    names = compile_components(output, given_images(images))
    say(f"{output}: {', '.join(names)}")


@pipeline_group.command("run", short_help="Run the pipeline on this machine.")
@RUNNER
@OUTPUT
@PIPELINE_ROOT
@PARAMS
@PARAMS_FILE
@PIPELINE
@IMAGES
def run_command(
    runner: str,
    output: Path,
    pipeline_root: str,
    params: tuple[str, ...],
    params_file: Mapping[str, str] | None,
    pipeline: Path,
    images: str,
) -> None:
    """Run the compiled pipeline on this machine, without Kubernetes.

    Independent steps run in parallel; steps whose image, command and inputs have not changed are reused; a killed run
    resumes where it stopped.

    \b
    Examples:
      mlgo pipeline run --param recipe=demo --output runs/demo
      mlgo pipeline run --runner docker --param recipe=tiny --param preset=tiny --output runs/tiny \\
        --pipeline-root gs://my-bucket/runs/tiny
    """
    from pipelines.local.run_locally import run_locally

    texts = local_parameters(params, params_file)
    skipped = run_locally(pipeline, texts, output, make_runner(runner, images, texts, pipeline), pipeline_root)
    if pipeline == COMPILED:
        print_result(artifact_root(pipeline_root, output), skipped)


def print_result(root: str, skipped: Collection[str]) -> None:
    """Print the figures of a finished run of the training pipeline, and what its release clang embeds.

    Args:
        root: directory or URI of the run's artifacts.
    """
    from components.evaluation.report.terminal_report import print_table, read_metrics
    from pipelines.retrain.artifacts import local

    artifact = "evaluation" if REPORT_STEP in skipped else "release_report"
    report = local(f"{root}/{artifact}")
    print_table(read_metrics(report), report)
    if REPORT_STEP in skipped and artifact_digest(f"{root}/release"):
        say(f"{root}/release is of an earlier run")


def parameters(params: tuple[str, ...], params_file: Mapping[str, str] | None = None) -> dict[str, str]:
    """Parse NAME=VALUE options, which win over the parameters of a file."""
    texts = dict(params_file or {})
    for param in params:
        name, equals, value = param.partition("=")
        if not equals or not name:
            raise UserError(f"--param {param!r} is not of the form NAME=VALUE", "for example --param recipe=demo")
        texts[name] = value
    return texts


def local_parameters(params: tuple[str, ...], params_file: Mapping[str, str] | None = None) -> dict[str, str]:
    """Parse the parameters of a run on this machine, whose steps run in another working directory.

    Paths of existing files and directories, the path of a state and the external training clang become absolute.
    """
    texts = parameters(params, params_file)
    for name, value in texts.items():
        if name in BY_NAME:
            texts[name] = BY_NAME[name].absolute(value)
        if name == "compile_commands" and not in_object_storage(value):
            texts[name] = str(find_database(Path(texts[name])))
    return texts


def make_runner(kind: str, images: str, parameters: dict[str, str], pipeline: Path = COMPILED) -> Runner:
    """Return the runner that --runner names.

    Args:
        images: --images, for docker.
        parameters: the pipeline's, as returned by `local_parameters`.
        pipeline: YAML file of the compiled pipeline.
    """
    if kind == "docker":
        spec = load_spec(pipeline)
        if not builds_sdk(spec):
            check_llvm_in_images(parameters | {"llvm_major": str(_llvm_major(parameters))})
            check_recipe_in_images(parameters)
        if (state := parameters.get("retrain_state")) and not in_object_storage(state):
            raise UserError(
                f"--param retrain_state={state}: the step in a container that promotes cannot write this file",
                f"name a state in object storage, {USAGE}.json, or use --runner process",
            )
        from pipelines.images import given_images
        from pipelines.local.runners.docker import DockerRunner

        return DockerRunner(given_images(images), used_images(spec))
    from pipelines.local.runners.process import ProcessRunner

    return ProcessRunner(llvm_major=_llvm_major(parameters))


def _llvm_major(parameters: dict[str, str]) -> int:
    """Return the parameter `llvm_major` or its default; raise UserError if it is not a whole number."""
    try:
        return int(parameters.get("llvm_major", BY_NAME["llvm_major"].default))
    except ValueError:
        problem = f"the parameter llvm_major is {parameters['llvm_major']!r}, but must be a whole number"
        raise UserError(problem, "pass --param llvm_major=19") from None


def in_pipelines_environment() -> None:
    """Replace this process by the same command in the environment that has kfp, unless this is that environment.

    Raises:
        UserError: no environment has kfp.
    """
    interpreters = [path / "bin" / "python" for path in pipelines_environments()]
    if named := os.environ.get("MLGO_PIPELINES_PYTHON"):
        interpreters = [Path(named)]
    chosen = next(filter(Path.is_file, interpreters), None)
    if chosen and chosen.parent.parent != Path(sys.prefix):
        sys.stdout.flush()
        os.execv(chosen, [*module_command("pipelines", python=chosen), *sys.argv[1:]])
    if find_spec("kfp") is None:
        raise UserError(
            "kfp is not installed in this environment",
            "mlgo setup pipelines",
        )
