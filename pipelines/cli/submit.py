"""`mlgo pipeline submit | upload | schedule | watch | cancel | retry`: a pipeline and its runs on a server."""

from __future__ import annotations

import time

import click

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.rayjob.manifest import RUN_LABEL
from pipelines.cli.pipeline import pipeline_group
from pipelines.cli.server_options import (
    option,
    parse_pairs,
    takes_package,
    takes_run,
    takes_run_or_stored,
    takes_server,
)
from pipelines.submit.cron import CronSchedule, parse_cron
from pipelines.submit.kfp import MAX_CONCURRENCY
from pipelines.submit.options import SubmitOptions
from pipelines.submit.server import PipelineServer, find_run
from pipelines.submit.server import wait as wait_for

_WAIT = click.option("--wait", is_flag=True, help="Follow the run, and exit as `mlgo pipeline watch`.")


@pipeline_group.command("submit", short_help="Submit the pipeline to KFP or Vertex AI.")
@takes_server
@takes_run_or_stored
@_WAIT
def submit_command(server: PipelineServer, options: SubmitOptions, wait: bool) -> None:
    """Submit the pipeline to Kubeflow Pipelines or to Vertex AI, with the digests of pushed images.

    No option takes a token, because every user of a machine can read the command lines of its processes.

    \b
    Examples:
      mlgo pipeline submit --host http://localhost:8080 --param recipe=demo --pipeline-root gs://my-bucket/kfp --wait
      mlgo pipeline submit --vertex my-project/europe-west4 --param recipe=demo --pipeline-root gs://my-bucket/kfp

    \b
    Exit status: 0 submitted (with --wait: the run succeeded), 1 error or failed run, 3 canceled run.
    """
    submit_run(server, options, wait)


def submit_run(server: PipelineServer, options: SubmitOptions, wait: bool) -> None:
    run_id, line = server.submit(options)
    say(line)
    if wait:
        wait_for(server, run_id)


@pipeline_group.command("upload", short_help="Store the pipeline, or a new version of it, on KFP or for Vertex AI.")
@takes_server
@takes_package
@option("--name", help="Name of the pipeline.  [default: the compiled pipeline's]")
@option("--version-name", help="Name of the new version; Vertex AI: its tag.  [default: the time]")
@option(
    "--repository",
    metavar="NAME",
    help="Vertex AI: repository of Artifact Registry, of the format Kubeflow Pipelines, in the project and region.",
)
@option(
    "--tag",
    multiple=True,
    default=(),
    callback=parse_pairs,
    metavar="KEY=VALUE",
    help="KFP 2.17: tag of the version, at most 63 characters each, without dots in KEY; repeatable, up to 20 times.",
)
def upload_command(server: PipelineServer, options: SubmitOptions, version_name: str, repository: str) -> None:
    """Store the pipeline on a KFP server, as a new pipeline or as a new version of it, to start runs in its interface;
    or for Vertex AI, in Artifact Registry.

    \b
    Examples:
      mlgo pipeline upload --host http://localhost:8080 --version-name 2026-01
      mlgo pipeline upload --vertex my-project/europe-west4 --repository pipelines --version-name 2026-01
    """
    version_name = version_name or time.strftime("%Y%m%d-%H%M%S")
    say(server.upload(options, version_name, repository))


@pipeline_group.command("schedule", short_help="Run the pipeline on a schedule of KFP or Vertex AI.")
@takes_server
@click.option(
    "--cron",
    type=parse_cron,
    required=True,
    metavar="EXPR",
    help="Minute, hour, day of the month, month, day of the week (0 is Sunday); six fields begin with the second. "
    "Vertex AI: may begin with CRON_TZ=ZONE.",
)
@click.option(
    "--max-concurrency",
    type=click.IntRange(1, MAX_CONCURRENCY),
    default=1,
    show_default=True,
    metavar="N",
    help="How many runs of the schedule may run at the same time.",
)
@takes_run
def schedule_command(server: PipelineServer, options: SubmitOptions, cron: CronSchedule, max_concurrency: int) -> None:
    """Run the pipeline on a schedule: a recurring run of KFP, or a schedule of Vertex AI.

    The schedule keeps the pipeline and its parameters as they are now. Runs that it missed, for example while it was
    disabled, do not start later.

    \b
    Example:
      mlgo pipeline schedule --host http://localhost:8080 --cron "0 3 * * 1" --param recipe=demo \\
        --pipeline-root gs://my-bucket/kfp
    """
    say(server.schedule(options, cron, max_concurrency))


@pipeline_group.command("watch")
@click.argument("run")
@takes_server
def watch_command(server: PipelineServer, run: str) -> None:
    """Follow a run on a server until it ends. RUN is its ID, or its resource name on Vertex AI, the beginning of the
    ID, or its name.

    \b
    Example:
      mlgo pipeline watch 2f0a8b1e-5d1c-4d52-9a34-0c1f6f0e7d11 --host http://localhost:8080

    \b
    Exit status: 0 the run succeeded, 1 it failed or cannot be followed, 3 it was canceled, 130 interrupted (the run
    continues).
    """
    wait_for(server, run)


@pipeline_group.command("cancel")
@click.argument("run")
@takes_server
def cancel_command(server: PipelineServer, run: str) -> None:
    """Cancel a run on a server. RUN is its ID, or its resource name on Vertex AI, the beginning of the ID, or its name.

    \b
    Example:
      mlgo pipeline cancel 2f0a8b1e-5d1c-4d52-9a34-0c1f6f0e7d11 --host http://localhost:8080

    \b
    Exit status: 0 the server accepted; 1 there is no such run, or it has ended. Steps may take a minute to end. On KFP
    the RayJob of a run with workers=rayjob is deleted, too, if the kubeconfig names its cluster.
    """
    run = find_run(server, run).run_id
    may_use_ray = server.cancel(run)
    say(f"canceling: {run}")
    if may_use_ray:
        end_ray_clusters(run)


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


@pipeline_group.command("retry", short_help="Continue a failed run on KFP from the steps that failed.")
@click.argument("run")
@takes_server
@_WAIT
def retry_command(server: PipelineServer, run: str, wait: bool) -> None:
    """Start the failed steps of a run on KFP again, and those that depend on them. RUN is its ID, the beginning of it,
    or its name.

    The run keeps its ID, its parameters, its images and the results of its finished steps. A canceled run continues,
    too. The step that notifies does not run again if it has run.

    \b
    Example:
      mlgo pipeline retry 2f0a8b1e-5d1c-4d52-9a34-0c1f6f0e7d11 --host http://localhost:8080 --wait

    \b
    Exit status: 0 the server accepted (with --wait: the run succeeded), 1 error or failed run, 3 canceled run.
    """
    run = find_run(server, run).run_id
    server.retry(run)
    say(f"retrying: {server.page(run)}")
    if wait:
        wait_for(server, run)
