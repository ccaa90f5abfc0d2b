"""The KFP pipeline of the smoke test, and its components.

    check toolchain image ── check training image ─┐
          └─ condition ── step that fails once ────┴─ report
    check RayJob ─────────────────────────────────────┘

Each step runs checks (checks.py) and writes what they found, whether they work or not, so that one run tells
everything. Only a step that cannot start, or cannot write its artifact, ends it; the log has its checks then.
"""

from functools import partial

from kfp import dsl

from components.platform.launcher.declare import Port, component
from components.platform.launcher.images import CLUSTER, CLUSTER_VARIABLE, IMAGES
from pipelines.tasks import notification, sized

_RUN_ID = Port("run_id", "ID of the run.")
_FOUND = "What was found."

check_toolchain = component(
    "check-toolchain",
    "Check the image toolchain, the pod that it runs in, and the root of the artifacts.",
    ("--image", "toolchain"),
    Port("toolchain_checks", _FOUND, dsl.Output[dsl.Artifact], "--output"),
    Port("next_step", "`run`.", dsl.OutputPath(str), ""),
    subcommand="image",
    values={"checks.json:next_step": "next_step"},
)

check_training = component(
    "check-training",
    "Check the image training, the pod that it runs in, the root, and the artifact of another step.",
    ("--image", "training"),
    Port("toolchain_checks", "What another step found.", dsl.Input[dsl.Artifact], "--read"),
    Port("training_checks", _FOUND, dsl.Output[dsl.Artifact], "--output"),
    subcommand="image",
)

check_ray = component(
    "check-ray",
    "Check that KubeRay runs a RayJob of one pod.",
    Port("ray_cluster_options", "NAME=VALUE,..., settings of the Ray cluster. Empty: defaults."),
    _RUN_ID,
    Port("ray_checks", _FOUND, dsl.Output[dsl.Artifact], "--output"),
    subcommand="ray",
)

check_retry = component(
    "check-retry",
    "Check that a step behind a condition runs, and that the server repeats a step that fails.",
    Port("training_checks", "What another step found.", dsl.Input[dsl.Artifact], "--read"),
    _RUN_ID,
    Port("fail_once", "Whether the first attempt of this step fails: `auto`, `yes` or `no`."),
    Port("retry_checks", _FOUND, dsl.Output[dsl.Artifact], "--output"),
    subcommand="retry",
)

unreachable = component("unreachable", "Fail: the condition of this step never holds.", subcommand="unreachable")

smoke_report = component(
    "smoke-report",
    "Write the table of what all steps found.",
    Port("toolchain_checks", "", dsl.Input[dsl.Artifact], "--checks"),
    Port("training_checks", "", dsl.Input[dsl.Artifact], "--checks"),
    Port("ray_checks", "", dsl.Input[dsl.Artifact], "--checks"),
    Port("retry_checks", "", dsl.Input[dsl.Artifact], "--checks"),
    Port("table", "The table, in Markdown, HTML and figures.", dsl.Output[dsl.Artifact], "--output"),
    Port(
        "smoke_metrics",
        "Numbers of checks that work, that fail and that were not tried, and the time between steps.",
        dsl.Output[dsl.Metrics],
        "",
    ),
    Port("page", "The table in HTML.", dsl.Output[dsl.HTML], ""),
    Port("summary", "The table in Markdown.", dsl.Output[dsl.Markdown], ""),
    subcommand="report",
    copies={"table.html": "page", "table.md": "summary"},
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
