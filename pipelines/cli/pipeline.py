"""`mlgo pipeline`: compile the pipeline, run it on this machine, or submit it to a server."""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import click

from components.core.console import UserError, say
from pipelines.cli.flags import IMAGES, OUTPUT, PARAMS, PIPELINE_ROOT, RUNNER
from pipelines.local.runners.runner import Runner
from pipelines.spec import COMPILED, load_spec
from pipelines.validation import check_cloud_root, checked_values, uses_rayjob

_PIPELINE = click.option(
    "--pipeline",
    type=click.Path(path_type=Path, dir_okay=False),
    default=COMPILED,
    help="A compiled pipeline.  [default: this project's]",
)
_PATHS = {"recipe", "corpus", "compile_commands", "llvm_source", "oversample_modules", "extra_policy", "start_from"}


@click.group("pipeline")
def pipeline_group() -> None:
    """Compile the pipeline for KFP, run it on this machine, or submit it to a server.

    \b
    Examples:
      mlgo pipeline compile --output training.yaml
      mlgo pipeline run --runner docker --param recipe=tiny --param preset=tiny --output runs/tiny
    """


@pipeline_group.command("compile")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="YAML file to write.")
def compile_command(output: Path) -> None:
    """Compile pipelines/training.py to KFP's YAML; needs the environment `pipelines`.

    \b
    Example:
      mlgo pipeline compile --output training.yaml
    """
    in_pipelines_environment()
    from pipelines.compile import compile_pipeline

    compile_pipeline(output)
    say(f"compiled: {output}")


@pipeline_group.command("run")
@RUNNER
@OUTPUT
@PIPELINE_ROOT
@PARAMS
@_PIPELINE
@IMAGES
def run_command(
    runner: str, output: Path, pipeline_root: str, params: tuple[str, ...], pipeline: Path, images: Path
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

    given = parameters(params)
    run_locally(pipeline, given, output, make_runner(runner, images, given), pipeline_root)


@pipeline_group.command("submit")
@click.option("--host", metavar="URL", help="URL of a KFP server.")
@click.option("--vertex", metavar="PROJECT/REGION", help="Project and region of Vertex AI Pipelines.")
@click.option(
    "--pipeline-root",
    default="",
    metavar="URI",
    help="gs://BUCKET/PATH of the artifacts; also minio:// and s3:// with --host.  [default: the server's]",
)
@click.option("--name", default="", help="Name of the run.  [default: the pipeline's name and the time]")
@click.option("--wait", is_flag=True, help="Follow the run, and exit with status 0 only if it succeeds.")
@click.option(
    "--service-account",
    "account",
    default="",
    metavar="NAME",
    help="Kubernetes service account of the steps, for example mlgo-steps of k8s/base.  [default: the server's]",
)
@click.option(
    "--notify-secret",
    default="",
    metavar="NAME",
    help="Kubernetes Secret whose key `url` is a webhook to notify when the run ends.",
)
@PARAMS
@_PIPELINE
@IMAGES
def submit_command(
    host: str | None,
    vertex: str | None,
    pipeline_root: str,
    name: str,
    wait: bool,
    account: str,
    notify_secret: str,
    params: tuple[str, ...],
    pipeline: Path,
    images: Path,
) -> None:
    """Submit the pipeline to Kubeflow Pipelines or to Vertex AI, with the digests of pushed images.

    \b
    Examples:
      mlgo pipeline submit --host http://localhost:8080 --param recipe=demo --pipeline-root gs://my-bucket/kfp --wait
      mlgo pipeline submit --vertex my-project/europe-west4 --param recipe=demo --pipeline-root gs://my-bucket/kfp
    """
    if bool(host) == bool(vertex):
        raise UserError("exactly one of --host and --vertex is needed", "pass --host URL or --vertex PROJECT/REGION")
    project, slash, region = (vertex or "").partition("/")
    if vertex and not (project and slash and region):
        raise UserError(f"--vertex {vertex!r} is not of the form PROJECT/REGION", "--vertex my-project/europe-west4")
    if vertex and notify_secret:
        raise UserError("--notify-secret: Vertex AI has no Kubernetes Secrets", "use Vertex AI's notifications")
    if vertex or pipeline_root:
        check_cloud_root(pipeline_root, bool(vertex))
    else:
        say(
            "no --pipeline-root: steps use the server's default. If that is not gs://BUCKET/PATH, a training whose pod "
            "is lost starts again from the beginning, and workers=rayjob fails"
        )
    if host:
        in_pipelines_environment()
    from pipelines.images import read_images
    from pipelines.submit.kfp import follow, notify_settings, ready_spec, run_page, submit

    given = parameters(params)
    ray = uses_rayjob(checked_values(load_spec(pipeline), given))
    if ray and vertex:
        raise UserError(
            "--param workers=rayjob: a RayJob needs steps that run in a Kubernetes cluster",
            "submit to a KFP server (--host URL), or use workers=local",
        )
    if ray and pipeline_root:
        check_cloud_root(pipeline_root, vertex=False, rayjob=True)
    spec = ready_spec(pipeline, read_images(images), ray)
    name = name or f"{spec['pipelineInfo']['name']}-{time.strftime('%Y%m%d-%H%M%S')}"
    if host:
        platform = notify_settings(spec, notify_secret) if notify_secret else None
        run_id = submit(spec, given, host, pipeline_root, name, account, platform)
        say(f"run {name}: {run_page(host, run_id)}")
        if wait:
            follow(run_id, host.rstrip("/"))
        return
    from pipelines.submit.vertex import follow_vertex, submit_vertex

    resource = submit_vertex(spec, given, project, region, pipeline_root, name)
    say(f"job: {resource}")
    if wait:
        follow_vertex(resource, region)


def parameters(params: tuple[str, ...]) -> dict[str, str]:
    """Parse NAME=VALUE options; a value that names an existing file or directory becomes an absolute path."""
    given = {}
    for param in params:
        name, equals, value = param.partition("=")
        if not equals or not name:
            raise UserError(f"--param {param!r} is not of the form NAME=VALUE", "for example --param recipe=demo")
        is_path = name in _PATHS and value and "://" not in value and Path(value).exists()
        if name == "recipe" and Path(value).is_dir():
            is_path = False  # a built-in recipe may have that name
        given[name] = os.path.abspath(value) if is_path else value
    return given


def make_runner(kind: str, images: Path, given: dict[str, str]) -> Runner:
    """Return the runner that --runner names.

    Args:
        images: images.json, for docker.
        given: the pipeline's parameters, as returned by `parameters`.
    """
    if kind == "docker":
        from pipelines.images import read_images
        from pipelines.local.runners.docker import DockerRunner

        return DockerRunner(read_images(images))
    from pipelines.local.runners.process import ProcessRunner

    return ProcessRunner(llvm_major=_llvm_major(given))


def _llvm_major(given: dict[str, str]) -> int:
    """Return the parameter `llvm_major` or its default; raise UserError if it is not a whole number."""
    try:
        return int(given.get("llvm_major", "19"))
    except ValueError:
        problem = f"the parameter llvm_major is {given['llvm_major']!r}, but must be a whole number"
        raise UserError(problem, "pass --param llvm_major=19") from None


def in_pipelines_environment() -> None:
    """Replace this process by the same command in the environment that has kfp, unless this is that environment.

    Raises:
        UserError: no environment has kfp.
    """
    default = Path(sys.prefix).with_name(f"{Path(sys.prefix).name}-pipelines") / "bin" / "python"
    chosen = Path(os.environ.get("MLGO_PIPELINES_PYTHON", default))
    if chosen.is_file() and chosen.parent.parent != Path(sys.prefix):
        sys.stdout.flush()
        os.execv(chosen, [str(chosen), "-P", "-m", "pipelines", *sys.argv[1:]])
    if find_spec("kfp") is None:
        raise UserError(
            "kfp is not installed in this environment",
            "run make setup-pipelines, or pip install mlgo-pipeline[pipelines]",
        )
