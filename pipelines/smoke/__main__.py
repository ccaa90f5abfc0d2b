"""Command line of the steps of the smoke test, as the launcher runs them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
import msgspec

from components.platform.command import run_step
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.launcher.images import STEPS
from components.platform.storage import publish
from components.platform.storage.input_files import read_json, typed
from components.platform.storage.options import ARTIFACT, OUTPUT
from components.platform.storage.uri import display_path
from pipelines.smoke import checks
from pipelines.smoke.rows import CHECKS_JSON, FAIL_ONCE, Checks, FailedOnPurpose, StepChecks, perform, process_start_s
from pipelines.smoke.table import time_between_steps, write_table
from pipelines.submit.kfp_client import server_of_pod

_OUTPUT = click.option("--output", required=True, metavar="DIR|URI", help="Artifact to write.")
_READ = click.option("--read", required=True, metavar="DIR|URI", help="Artifact of an earlier step.")
_RUN_ID = click.option("--run-id", default="", metavar="ID", help="ID of the run.")


@click.group()
def main() -> None:
    """Check what works in a step of a pipeline.

    \b
    Example:
      python -m pipelines.smoke image --image training --read runs/smoke/toolchain_checks --output checks
    """


@main.command()
@click.option("--image", type=click.Choice(STEPS), required=True, help="Image that the step should run in.")
@click.option("--read", default="", metavar="DIR|URI", help="Artifact of an earlier step.")
@_OUTPUT
def image(image: str, read: str, output: str) -> None:
    """Check the image, the pod that it runs in, and the root of the artifacts."""
    to_check: Checks = {
        "image": partial(checks.check_image, image),
        **({"clang": checks.check_clang} if image == "toolchain" else {"TensorFlow": checks.check_tensorflow}),
        "/dev/shm": checks.check_shared_memory,
        "temporary files": checks.check_temporary_files,
        "root": partial(checks.check_root, output),
        **({"artifact of another step": partial(checks.check_artifact, read)} if read else {}),
    }
    _publish(image, to_check, output)


@main.command()
@click.option("--ray-cluster-options", default="", metavar="NAME=VALUE,...", help="Settings of the Ray cluster.")
@_RUN_ID
@_OUTPUT
def ray(ray_cluster_options: str, run_id: str, output: str) -> None:
    """Check that KubeRay runs a RayJob of one pod."""
    from pipelines.smoke.rayjob import check_ray  # loads the client of Kubernetes, which takes seconds

    _publish("ray", {"RayJob of one pod": partial(check_ray, ray_cluster_options, run_id)}, output)


@main.command()
@_READ
@_RUN_ID
@click.option("--fail-once", type=click.Choice(FAIL_ONCE), default="auto", show_default=True)
@_OUTPUT
def retry(read: str, run_id: str, fail_once: str, output: str) -> None:
    """Check that a step behind a condition runs, and that the server repeats a step that fails."""
    api = checks.KfpApi(server_of_pod())
    to_check: Checks = {
        "condition on an output parameter": lambda: "this step, whose condition holds, runs",
        "placeholder of the run's ID": partial(checks.check_run_id, run_id),
        "KFP's API in a pod": api.check,
        "step that fails": lambda: checks.check_retry(read, fail_once, api.version),
    }
    try:
        _publish("retry", to_check, output)
    except FailedOnPurpose:
        raise UserError(
            "this attempt fails on purpose, to see whether the server repeats it",
            "if it does not, failed steps are not repeated here, and mlgo pipeline retry RUN continues this run",
        ) from None


@main.command()
def unreachable() -> None:
    """Fail: the condition of this step never holds."""
    raise UserError("this step has run, although its condition does not hold", "use another version of the server")


@main.command()
@click.option(
    "--checks", "artifacts", type=ARTIFACT, multiple=True, required=True, help="Checks of a step; repeatable."
)
@click.option("--output", type=OUTPUT, required=True, help="Table to write.")
def report(artifacts: Sequence[Path], output: Path) -> None:
    """Write the table of what all steps found."""
    remedy = "run the smoke test again"
    steps = [
        typed(read_json(artifact / CHECKS_JSON, remedy), StepChecks, CHECKS_JSON, "the checks of a step", remedy)
        for artifact in artifacts
    ]
    this = StepChecks("report", process_start_s(), time.time(), [])
    this.rows = perform({"time between steps": lambda: time_between_steps([*steps, this])})
    with publish(output, "smoke test") as directory:
        lines = write_table(directory, [*steps, this])
    say(display_path(output))
    for line in lines:
        say(line)


def _publish(step: str, to_check: Checks, output: str) -> None:
    """Carry out the checks of a step, and publish what they find."""
    rows = perform(to_check)
    with publish(OUTPUT.convert(output, None, None), "smoke test") as directory:
        content = msgspec.json.encode(StepChecks(step, process_start_s(), time.time(), rows))
        (directory / CHECKS_JSON).write_bytes(content)


if __name__ == "__main__":
    run_step(main)
