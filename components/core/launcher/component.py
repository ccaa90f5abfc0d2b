"""KFP component of the exit handler, which runs last, whether or not the pipeline succeeded."""

from kfp import dsl

from components.core.launcher.images import IMAGES


@dsl.container_component
def finish(status: dsl.PipelineTaskFinalStatus):  # type: ignore[no-untyped-def]
    """Report how the pipeline ended, in its log and to the webhook of `mlgo pipeline submit --notify-secret`.

    Args:
        status: Final status of the pipeline.
    """
    return dsl.ContainerSpec(
        image=IMAGES["toolchain"],
        command=["python", "-m", "components.core.launcher.finish"],
        args=["--status", status],
    )
