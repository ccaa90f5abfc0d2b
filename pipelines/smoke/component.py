"""The KFP pipeline of the smoke test, and its components.

    check toolchain image ── check training image ─┐
          └─ condition ── step that fails once ────┴─ report
    check RayJob ─────────────────────────────────────┘

Each step runs checks (checks.py) and writes what they found, whether they work or not, so that one run tells
everything. Only a step that cannot start, or cannot write its artifact, ends it; the log has its checks then.
"""

from functools import partial

from kfp import dsl

from components.platform.launcher.declare import step
from components.platform.launcher.images import CLUSTER, CLUSTER_VARIABLE, IMAGES
from pipelines.tasks import notification, sized


@dsl.container_component
def check_toolchain(toolchain_checks: dsl.Output[dsl.Artifact], next_step: dsl.OutputPath(str)):  # type: ignore[no-untyped-def, valid-type]
    """Check the image toolchain, the pod that it runs in, and the root of the artifacts.

    Args:
        toolchain_checks: What was found.
        next_step: `run`.
    """
    return step(
        "check-toolchain",
        {"--image": "toolchain", "--output": toolchain_checks.uri},
        subcommand="image",
        values={"checks.json:next_step": next_step},
    )


@dsl.container_component
def check_training(toolchain_checks: dsl.Input[dsl.Artifact], training_checks: dsl.Output[dsl.Artifact]):  # type: ignore[no-untyped-def]
    """Check the image training, the pod that it runs in, the root, and the artifact of another step.

    Args:
        toolchain_checks: What another step found.
        training_checks: What was found.
    """
    arguments = {"--image": "training", "--read": toolchain_checks.uri, "--output": training_checks.uri}
    return step("check-training", arguments, subcommand="image")


@dsl.container_component
def check_ray(run_id: str, ray_cluster_options: str, ray_checks: dsl.Output[dsl.Artifact]):  # type: ignore[no-untyped-def]
    """Check that KubeRay runs a RayJob of one pod.

    Args:
        run_id: ID of the run.
        ray_cluster_options: NAME=VALUE,..., settings of the Ray cluster. Empty: defaults.
        ray_checks: What was found.
    """
    arguments = {"--ray-cluster-options": ray_cluster_options, "--run-id": run_id, "--output": ray_checks.uri}
    return step("check-ray", arguments, subcommand="ray")


@dsl.container_component
def check_retry(  # type: ignore[no-untyped-def]
    run_id: str, training_checks: dsl.Input[dsl.Artifact], fail_once: str, retry_checks: dsl.Output[dsl.Artifact]
):
    """Check that a step behind a condition runs, and that the server repeats a step that fails.

    Args:
        run_id: ID of the run.
        training_checks: What another step found.
        fail_once: Whether the first attempt of this step fails: `auto`, `yes` or `no`.
        retry_checks: What was found.
    """
    arguments = {"--read": training_checks.uri, "--run-id": run_id, "--fail-once": fail_once}
    return step("check-retry", arguments | {"--output": retry_checks.uri}, subcommand="retry")


@dsl.container_component
def unreachable():  # type: ignore[no-untyped-def]
    """Fail: the condition of this step never holds."""
    return step("unreachable", {}, subcommand="unreachable")


@dsl.container_component
def smoke_report(  # type: ignore[no-untyped-def]
    toolchain_checks: dsl.Input[dsl.Artifact],
    training_checks: dsl.Input[dsl.Artifact],
    ray_checks: dsl.Input[dsl.Artifact],
    retry_checks: dsl.Input[dsl.Artifact],
    table: dsl.Output[dsl.Artifact],
    smoke_metrics: dsl.Output[dsl.Metrics],
    page: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
):
    """Write the table of what all steps found.

    Args:
        toolchain_checks, training_checks, ray_checks, retry_checks: What steps found.
        table: The table, in Markdown, HTML and figures.
        smoke_metrics: Numbers of checks that work, that fail and that were not tried, and the time between steps.
        page: The table in HTML.
        summary: The table in Markdown.
    """
    all_checks = (toolchain_checks, training_checks, ray_checks, retry_checks)
    return step(
        "smoke-report",
        {"--checks": [checks.uri for checks in all_checks], "--output": table.uri},
        subcommand="report",
        copies={"table.html": page.path, "table.md": summary.path},
        metrics={"summary.json": "smoke_metrics"},
    )


_small = partial(sized, cached=False)
"""Its tasks always run, because they are about the present."""


@dsl.pipeline(
    name="mlgo-smoke",
    description="Check in minutes what works on this server, and tell it in a table.",
)
def smoke_pipeline(fail_once: str = "auto", ray_cluster_options: str = "") -> None:
    """Check what works on a server, before a run needs it for hours."""
    with dsl.ExitHandler(notification(), name="smoke-test"):
        run_id = dsl.PIPELINE_JOB_ID_PLACEHOLDER
        toolchain = _small(check_toolchain)()
        training = _small(check_training)(toolchain_checks=toolchain.outputs["toolchain_checks"])
        ray = _small(check_ray)(run_id=run_id, ray_cluster_options=ray_cluster_options)
        ray.set_env_variable(CLUSTER_VARIABLE, IMAGES[CLUSTER])
        with dsl.If(toolchain.outputs["next_step"] == "run", name="condition-holds"):
            training_checks = training.outputs["training_checks"]
            retry = _small(check_retry)(run_id=run_id, training_checks=training_checks, fail_once=fail_once)
            _small(smoke_report)(
                toolchain_checks=toolchain.outputs["toolchain_checks"],
                training_checks=training_checks,
                ray_checks=ray.outputs["ray_checks"],
                retry_checks=retry.outputs["retry_checks"],
            )
        with dsl.If(toolchain.outputs["next_step"] == "stop", name="condition-does-not-hold"):
            _small(unreachable)()
