"""`mlgo pipeline submit | upload | schedule | watch | cancel | retry`: a pipeline and its runs on a server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.rayjob.manifest import RUN_LABEL
from pipelines.cli.server import (
    PACKAGE_OPTIONS,
    RUN_OPTIONS,
    SERVER_OPTIONS,
    STORED_PIPELINE,
    chosen_server,
    option,
    options,
    package,
    run_request,
    stored_job,
    stored_run,
    vertex_settings,
)
from pipelines.submit import kfp, kfp_runs, vertex
from pipelines.submit.artifact_registry import upload_template
from pipelines.submit.cron import parse_cron
from pipelines.submit.kfp_client import KfpServer
from pipelines.submit.stored_pipeline import start_stored


@click.command("submit", short_help="Submit the pipeline to KFP or Vertex AI.")
@options(SERVER_OPTIONS, RUN_OPTIONS)
@STORED_PIPELINE
@click.option("--wait", is_flag=True, help="Follow the run, and exit as `mlgo pipeline watch`.")
def submit_command(wait: bool, **given: Any) -> None:
    """Submit the pipeline to Kubeflow Pipelines or to Vertex AI, with the digests of pushed images.

    No option takes a token, because every user of a machine can read the command lines of its processes.

    \b
    Examples:
      mlgo pipeline submit --host http://localhost:8080 --param recipe=demo --pipeline-root gs://my-bucket/kfp --wait
      mlgo pipeline submit --vertex my-project/europe-west4 --param recipe=demo --pipeline-root gs://my-bucket/kfp

    \b
    Exit status: 0 submitted (with --wait: the run succeeded), 1 error or failed run, 3 canceled run.
    """
    submit_run(given, wait)


def submit_run(given: Mapping[str, Any], wait: bool) -> None:
    """Submit a run, and follow it if `wait`.

    Args:
        given: SERVER_OPTIONS, RUN_OPTIONS and STORED_PIPELINE by name.
    """
    server = chosen_server(given)
    if given["stored_pipeline"] and isinstance(server, KfpServer):
        stored = stored_run(given)
        run = start_stored(server, stored)
        say(f"run {stored.name}: {kfp_runs.run_page(server, run)}")
    elif isinstance(server, KfpServer):
        request = run_request(server, given, starts_now=True)
        run = kfp.submit(server, request, given["experiment"])
        say(f"run {request.name}: {kfp_runs.run_page(server, run)}")
    else:
        assert isinstance(server, vertex.VertexServer)
        stored_pipeline = given["stored_pipeline"]
        job = stored_job(given) if stored_pipeline else (run_request(server, given, True), vertex_settings(given))
        run = vertex.submit_vertex(server, *job)
        say(f"job: {run}")
    if wait:
        _follow(server, run)


@click.command("upload", short_help="Store the pipeline, or a new version of it, on KFP or for Vertex AI.")
@options(SERVER_OPTIONS, PACKAGE_OPTIONS)
@option("--name", help="Name of the pipeline.  [default: the compiled pipeline's]")
@option("--version-name", help="Name of the new version; Vertex AI: its tag.  [default: the time]")
@option(
    "--repository",
    metavar="NAME",
    help="Vertex AI: repository of Artifact Registry, of the format Kubeflow Pipelines, in the project and region.",
)
def upload_command(name: str, version_name: str, repository: str, **given: Any) -> None:
    """Store the pipeline on a KFP server, as a new pipeline or as a new version of it, to start runs in its interface;
    or for Vertex AI, in Artifact Registry.

    \b
    Examples:
      mlgo pipeline upload --host http://localhost:8080 --version-name 2026-01
      mlgo pipeline upload --vertex my-project/europe-west4 --repository pipelines --version-name 2026-01
    """
    version_name = version_name or time.strftime("%Y%m%d-%H%M%S")
    if bool(given["vertex"]) != bool(repository):
        raise UserError(
            "mlgo pipeline upload: --vertex and --repository belong together",
            "Vertex AI starts pipelines that are stored in a repository of Artifact Registry; KFP stores them itself",
        )
    if repository:
        _store_for_vertex(given, name, version_name, repository)
        return
    server = chosen_server(given)
    assert isinstance(server, KfpServer)
    ready = package(server, given, ray=None)
    name = name or ready.spec["pipelineInfo"]["name"]
    pipeline, version = kfp.upload(server, ready.spec, ready.platform, name, version_name)
    say(f"version {version_name} of {name}: {server.page(f'pipelines/details/{pipeline}/version/{version}')}")


def _store_for_vertex(given: Mapping[str, Any], name: str, tag: str, repository: str) -> None:
    server = chosen_server(given)
    assert isinstance(server, vertex.VertexServer)
    spec = package(server, given, ray=False).spec
    if name:
        spec = {**spec, "pipelineInfo": {**spec["pipelineInfo"], "name": name}}
    uri = upload_template(server, repository, spec, tag)
    say(f"version {tag} of {spec['pipelineInfo']['name']}: {uri}")


@click.command("schedule", short_help="Run the pipeline on a schedule of KFP or Vertex AI.")
@options(SERVER_OPTIONS)
@click.option(
    "--cron",
    required=True,
    metavar="EXPR",
    help="Minute, hour, day of the month, month, day of the week (0 is Sunday); six fields begin with the second. "
    "Vertex AI: may begin with CRON_TZ=ZONE.",
)
@click.option(
    "--max-concurrency",
    type=click.IntRange(1, kfp.MAX_CONCURRENCY),
    default=1,
    show_default=True,
    metavar="N",
    help="How many runs of the schedule may run at the same time.",
)
@options(RUN_OPTIONS)
def schedule_command(cron: str, max_concurrency: int, **given: Any) -> None:
    """Run the pipeline on a schedule: a recurring run of KFP, or a schedule of Vertex AI.

    The schedule keeps the pipeline and its parameters as they are now. Runs that it missed, for example while it was
    disabled, do not start later.

    \b
    Example:
      mlgo pipeline schedule --host http://localhost:8080 --cron "0 3 * * 1" --param recipe=demo \\
        --pipeline-root gs://my-bucket/kfp
    """
    when = parse_cron(cron)
    server = chosen_server(given)
    if isinstance(server, KfpServer):
        when.for_kfp()
        request = run_request(server, given)
        identity = kfp.schedule(server, request, when, max_concurrency, given["experiment"])
        say(f"schedule {request.name}: {server.page(f'recurringrun/details/{identity}')}")
    else:
        when.for_vertex()
        request = run_request(server, given)
        name = vertex.schedule_vertex(server, request, when, max_concurrency, vertex_settings(given))
        say(f"schedule: {name}")


@click.command("watch")
@click.argument("run")
@options(SERVER_OPTIONS)
def watch_command(run: str, **given: Any) -> None:
    """Follow a run on a server until it ends. RUN is its ID, or its resource name on Vertex AI.

    \b
    Example:
      mlgo pipeline watch 2f0a8b1e-5d1c-4d52-9a34-0c1f6f0e7d11 --host http://localhost:8080

    \b
    Exit status: 0 the run succeeded, 1 it failed or cannot be followed, 3 it was canceled, 130 interrupted (the run
    continues).
    """
    _follow(chosen_server(given, needs_kfp=False), run)


@click.command("cancel")
@click.argument("run")
@options(SERVER_OPTIONS)
def cancel_command(run: str, **given: Any) -> None:
    """Cancel a run on a server. RUN is its ID, or its resource name on Vertex AI.

    \b
    Example:
      mlgo pipeline cancel 2f0a8b1e-5d1c-4d52-9a34-0c1f6f0e7d11 --host http://localhost:8080

    \b
    Exit status: 0 the server accepted; 1 there is no such run, or it has ended. Steps may take a minute to end. On KFP
    the RayJob of a run with workers=rayjob is deleted, too, if the kubeconfig names its cluster.
    """
    server = chosen_server(given, needs_kfp=False)
    if isinstance(server, KfpServer):
        uses_ray = kfp_runs.cancel(server, run)
        say(f"canceling: {run}")
        if uses_ray:
            end_ray_clusters(run)
    else:
        vertex.cancel_vertex(server, run)
        say(f"canceling: {run}")


def end_ray_clusters(run: str) -> None:
    """Delete the RayJobs of a run in the kubeconfig's cluster, or say how they end."""
    from pipelines.cluster.kubernetes_checks import Cluster
    from pipelines.cluster.rayjobs import delete_rayjobs

    try:
        cluster = Cluster("", "")
        deleted, failure = delete_rayjobs(cluster, run)
    except UserError as error:  # no kubeconfig
        deleted, failure = [], error.problem
    for name in deleted:
        say(f"deleting the RayJob {name}, whose checkpoints stay")
    if not deleted:
        say(f"no RayJob of the run is deleted: {failure or f'there is none in the cluster at {cluster.host}'}")
        say(f"  one ends by itself half an hour after its step; or kubectl delete rayjobs -A -l {RUN_LABEL}={run}")


@click.command("retry", short_help="Continue a failed run on KFP from the steps that failed.")
@click.argument("run")
@options(SERVER_OPTIONS)
@click.option("--wait", is_flag=True, help="Follow the run, and exit as `mlgo pipeline watch`.")
def retry_command(run: str, wait: bool, **given: Any) -> None:
    """Start the failed steps of a run on KFP again, and those that depend on them. RUN is its ID.

    The run keeps its ID, its parameters, its images and the results of its finished steps. A canceled run continues,
    too. The step that notifies does not run again if it has run.

    \b
    Example:
      mlgo pipeline retry 2f0a8b1e-5d1c-4d52-9a34-0c1f6f0e7d11 --host http://localhost:8080 --wait

    \b
    Exit status: 0 the server accepted (with --wait: the run succeeded), 1 error or failed run, 3 canceled run.
    """
    if given["vertex"]:
        raise UserError(
            "mlgo pipeline retry: Vertex AI does not continue a job that failed",
            "submit it again: without --no-cache, steps whose results can be reused are not repeated",
        )
    server = chosen_server(given, needs_kfp=False)
    assert isinstance(server, KfpServer)
    kfp_runs.retry_run(server, run)
    say(f"retrying: {kfp_runs.run_page(server, run)}")
    if wait:
        _follow(server, run)


SERVER_COMMANDS = (submit_command, upload_command, schedule_command, watch_command, cancel_command, retry_command)


def _follow(server: KfpServer | vertex.VertexServer, run: str) -> None:
    if isinstance(server, KfpServer):
        kfp_runs.follow(server, run)
    else:
        vertex.follow_vertex(server, run)
