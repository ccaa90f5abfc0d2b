"""`mlgo pipeline`: compile it, run it on this machine, submit it."""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import click

from components.console import UserError, say
from pipelines.checks import check_cloud_root, checked_values, uses_rayjob
from pipelines.flags import IMAGES, OUTPUT, PARAMS, PIPELINE_ROOT, RUNNER
from pipelines.runner import Runner
from pipelines.spec import COMPILED, load_spec

_PIPELINE = click.option(
    "--pipeline", type=click.Path(path_type=Path, dir_okay=False), default=COMPILED,
    help="A compiled pipeline.  [default: ours]",
)  # fmt: skip
_PATHS = {"recipe", "corpus", "compile_commands", "llvm_source", "emphasize", "with_policy", "start_from"}


@click.group("pipeline")
def pipeline_group() -> None:
    """Compile the pipeline for KFP, run it on this machine, or submit it to a server.

    \b
    Examples:
      mlgo pipeline compile --output training.yaml
      mlgo pipeline run --runner docker --param recipe=tiny --param preset=tiny --output runs/tiny
    """


@pipeline_group.command("compile")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="YAML to write.")
def compile_command(output: Path) -> None:
    """Compile pipelines/training.py to KFP's YAML. Needs the environment `pipelines`.

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
) -> None:  # fmt: skip
    """Run the compiled pipeline on this machine, without Kubernetes.

    Independent steps run in parallel; steps whose image, command and inputs did not change are reused; killed, it goes
    on where it stopped.

    \b
    Examples:
      mlgo pipeline run --param recipe=demo --output runs/demo
      mlgo pipeline run --runner docker --param recipe=tiny --param preset=tiny --output runs/tiny \\
        --pipeline-root gs://my-bucket/runs/tiny
    """
    from pipelines.local import run_locally

    given = parameters(params)
    run_locally(pipeline, given, output, make_runner(runner, images, given), pipeline_root)


@pipeline_group.command("submit")
@click.option("--host", metavar="URL", help="A KFP server.")
@click.option("--vertex", metavar="PROJECT/REGION", help="Vertex AI Pipelines.")
@click.option("--pipeline-root", default="", metavar="URI", help="gs://BUCKET/PATH.  [default: the server's]")
@click.option("--name", default="", help="Of the run.  [default: the pipeline's and the time]")
@click.option("--wait", is_flag=True, help="Follow the run: exit status 0 only if it succeeds.")
@click.option("--service-account", "account", default="", metavar="NAME",
              help="Kubernetes' account of the steps, mlgo-steps of k8s/base for example.  [default: the server's]")
@click.option("--notify-secret", default="", metavar="NAME",
              help="A Kubernetes Secret with the key `url`: a webhook that is told how the run ended.")
@PARAMS
@_PIPELINE
@IMAGES
def submit_command(
    host: str | None, vertex: str | None, pipeline_root: str, name: str, wait: bool, account: str, notify_secret: str,
    params: tuple[str, ...], pipeline: Path, images: Path,
) -> None:  # fmt: skip
    """Submit the pipeline to Kubeflow Pipelines or to Vertex AI, with the digests of pushed images.

    \b
    Examples:
      mlgo pipeline submit --host http://localhost:8080 --param recipe=demo --pipeline-root gs://my-bucket/kfp --wait
      mlgo pipeline submit --vertex my-project/europe-west4 --param recipe=demo --pipeline-root gs://my-bucket/kfp
    """
    if bool(host) == bool(vertex):
        raise UserError("exactly one server is needed", "pass --host URL or --vertex PROJECT/REGION")
    project, slash, region = (vertex or "").partition("/")
    if vertex and not (project and slash and region):
        raise UserError(f"--vertex {vertex!r} is not of the form PROJECT/REGION", "--vertex my-project/europe-west4")
    if vertex and notify_secret:
        raise UserError("--notify-secret: Vertex AI has no Kubernetes Secrets", "use Vertex AI's own notifications")
    if vertex or pipeline_root:
        check_cloud_root(pipeline_root)
    if host:
        in_pipelines_environment()
    from pipelines.images import read_images
    from pipelines.submit import follow, notify_settings, ready_spec, run_page, submit

    given = parameters(params)
    ray = uses_rayjob(checked_values(load_spec(pipeline), given))
    if ray and vertex:
        raise UserError(
            "--param workers=rayjob: a RayJob is started in the Kubernetes cluster that the steps run in",
            "submit to a KFP server (--host URL), or use workers=local",
        )
    spec = ready_spec(pipeline, read_images(images), ray)
    name = name or f"{spec['pipelineInfo']['name']}-{time.strftime('%Y%m%d-%H%M%S')}"
    if host:
        platform = notify_settings(spec, notify_secret) if notify_secret else None
        run_id = submit(spec, given, host, pipeline_root, name, account, platform)
        say(f"run {name}: {run_page(host, run_id)}")
        if wait:
            follow(run_id, host.rstrip("/"))
        return
    from pipelines.vertex import follow_vertex, submit_vertex

    resource = submit_vertex(spec, given, project, region, pipeline_root, name)
    say(f"job: {resource}")
    if wait:
        follow_vertex(resource, region)


def parameters(params: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE by name; a value that names a file or directory of this machine becomes an absolute path."""
    given = {}
    for param in params:
        name, equals, value = param.partition("=")
        if not equals or not name:
            raise UserError(f"--param {param!r} is not of the form NAME=VALUE", "for example --param recipe=demo")
        is_path = name in _PATHS and value and "://" not in value and Path(value).exists()
        if name == "recipe" and Path(value).is_dir():
            is_path = False  # it may be called as one of ours
        given[name] = os.path.abspath(value) if is_path else value
    return given


def make_runner(kind: str, images: Path, given: dict[str, str]) -> Runner:
    """What --runner names. images: images.json, for docker. given: of `parameters`."""
    if kind == "docker":
        from pipelines.docker_runner import DockerRunner
        from pipelines.images import read_images

        return DockerRunner(read_images(images))
    from pipelines.process_runner import ProcessRunner

    return ProcessRunner(llvm_major=_llvm_major(given))


def _llvm_major(given: dict[str, str]) -> int:
    """The parameter of that name, or its default. UserError if it is no number."""
    try:
        return int(given.get("llvm_major", "19"))
    except ValueError:
        problem = f"the parameter llvm_major is {given['llvm_major']!r}, and must be a whole number"
        raise UserError(problem, "--param llvm_major=19") from None


def in_pipelines_environment() -> None:
    """Becomes the same command in the environment that has kfp, if that is another one than this.

    Raises:
        UserError: there is no such environment.
    """
    beside = Path(sys.prefix).with_name(f"{Path(sys.prefix).name}-pipelines") / "bin" / "python"
    chosen = Path(os.environ.get("MLGO_PIPELINES_PYTHON", beside))
    if chosen.is_file() and chosen.parent.parent != Path(sys.prefix):
        sys.stdout.flush()
        os.execv(chosen, [str(chosen), "-P", "-m", "pipelines", *sys.argv[1:]])
    if find_spec("kfp") is None:
        raise UserError(
            "kfp is not installed in this environment", "make setup-pipelines, or pip install mlgo-pipeline[pipelines]"
        )
